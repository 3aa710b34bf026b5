import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.commons.compress.archivers.tar.TarArchiveEntry;
import org.apache.commons.compress.archivers.tar.TarArchiveOutputStream;

/** Packs a folder with Apache Commons Compress: Pack posix|gnu ARCHIVE FOLDER. Symbolic links are left out. */
public class Pack {
    public static void main(String[] words) throws Exception {
        boolean posix = words[0].equals("posix");
        Path root = Paths.get(words[2]);
        List<Path> paths = Files.walk(root).sorted().collect(Collectors.toList());
        try (OutputStream out = Files.newOutputStream(Paths.get(words[1]));
                TarArchiveOutputStream tar = new TarArchiveOutputStream(out, "UTF-8")) {
            tar.setLongFileMode(posix ? TarArchiveOutputStream.LONGFILE_POSIX : TarArchiveOutputStream.LONGFILE_GNU);
            tar.setBigNumberMode(posix ? TarArchiveOutputStream.BIGNUMBER_POSIX : TarArchiveOutputStream.BIGNUMBER_STAR);
            tar.setAddPaxHeadersForNonAsciiNames(posix);
            for (Path path : paths) {
                if (path.equals(root) || Files.isSymbolicLink(path) || !path.toFile().exists()) {
                    continue;
                }
                TarArchiveEntry entry = new TarArchiveEntry(path.toFile(), root.relativize(path).toString());
                tar.putArchiveEntry(entry);
                if (Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
                    Files.copy(path, tar);
                }
                tar.closeArchiveEntry();
            }
        }
    }
}
