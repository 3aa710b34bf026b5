"""The table of mistakes: the command that a user writes, and its environment.

docs/errors.md has the resulting errors.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SECTIONS", "Mistake"]


class Mistake(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    what : str
        The mistake, as text of the page.
    words : str
        The command, with ``{names}`` of the scene.
    error : str
        The class of the raised error.
    env : str
        ``NAME=VALUE`` words for the environment, also with names of the scene; ``NAME=`` unsets a variable.
    face : str
        ``both``, or only ``cell`` or ``terminal``.
    place : str
        What the row requires: ``nobody`` (a user without rights), ``mount`` (a separate disk),
        ``stranger`` (another user, who listens at a port).
    """

    what: str
    words: str
    error: str
    env: str = ""
    face: str = "both"
    place: str = ""


PATHS = [
    Mistake("no such object", "pull {b}/none data", "NotFound"),
    Mistake("no such bucket", "pull s3://{nobucket}/d/ data", "NotFound"),
    Mistake("a glob that matches nothing", "pull '{b}/d/*.jpg' data", "NotFound"),
    Mistake("a misspelt key", "pull {b}/d/a.tx data", "NotFound"),
    Mistake("an object written as a folder", "pull {b}/d/a.txt/ data", "NotFound"),
    Mistake("ls of a place that does not exist", "ls {b}/none/", "NotFound"),
    Mistake("ls of a bucket that does not exist", "ls s3://{nobucket}/", "NotFound"),
    Mistake("du of a glob that matches nothing", "du '{b}/d/*.jpg'", "NotFound"),
    Mistake("du with too many levels", "du {b}/d/ --depth 5000", "BadOption"),
    Mistake("no bucket in the URL", "pull s3:// data", "BadOption"),
    Mistake("keys in an S3 URL", "pull s3://key:word@bucket/d/ data", "BadOption"),
    Mistake("no SOURCE", "pull", "BadOption"),
    Mistake("too many paths", "pull a b c", "BadOption"),
    Mistake("an empty path", "pull '' data", "BadOption"),
    Mistake("a command for a URL", "pull 'pipe:aws s3 cp s3://bucket/x -' data", "BadOption"),
    Mistake("a variable that is not set", "pull {{nothing}}/d/ data", "BadOption", face="cell"),
    Mistake("a variable that is not a text", "pull {{several}}/d/ data", "BadOption", face="cell"),
    Mistake("an expression in braces", "pull {{several[:1]}}/d/ data", "BadOption", face="cell"),
    Mistake("an attribute that does not exist", "pull {{several.first}}/d/ data", "BadOption", face="cell"),
    Mistake("a quote that is not closed", "pull 'a b", "BadOption", face="cell"),
    Mistake("a misspelt verb", "pul {b}/d/ data", "BadOption", face="terminal"),
    Mistake("an unknown protocol", "pull xyz://bucket/d/ data", "BadOption"),
    Mistake("a protocol whose package is missing", "pull smb://server/share/ data", "BadOption"),
    Mistake("pull from a folder that does not exist", "pull none data", "NotFound"),
    Mistake("a bucket without its scheme", "pull labdata/set/ data", "NotFound"),
    Mistake("pull to a URL", "pull {b}/d/ {b}/e/", "BadOption"),
    Mistake("pull to standard output", "pull {b}/d/a.txt -", "BadOption"),
    Mistake("pull to a file", "pull {b}/d/ file.txt", "BadOption"),
    Mistake("pull below a file", "pull {b}/d/ file.txt/sub", "BadOption"),
    Mistake("pull below a link to nothing", "pull {b}/d/ lost/sub", "BadOption"),
    Mistake("an object and a folder with the same name", "pull {b}/both data", "BadOption"),
    Mistake("push of a folder that does not exist", "push none {b}/p/", "NotFound"),
    Mistake("push of a link to nothing", "push lost {b}/p/", "NotFound"),
    Mistake("push from a URL", "push {b}/d/ {b}/p/", "BadOption"),
    Mistake("push without TARGET", "push tree", "BadOption"),
    Mistake("push of a glob that a shell expanded to two files", "push tree/a.txt file.txt", "BadOption"),
    Mistake("push of a device", "push /dev/null {b}/p/", "BadOption"),
    Mistake("push to a bucket that does not exist", "push tree s3://bucket/p/", "NotFound", "{refusing_404}"),
    Mistake("copy from the disk", "copy tree {b}/p/", "BadOption"),
    Mistake("copy to itself", "copy {b}/d/ {b}/d/", "BadOption"),
    Mistake("copy of a place that does not exist", "copy {b}/none/ {b}/p/", "NotFound"),
    Mistake("cleanup of a folder that does not exist", "cleanup none", "NotFound"),
    Mistake("cleanup --all of the home folder", "cleanup ~ --all", "BadOption"),
    Mistake("cleanup --all below a URL", "cleanup {b}/d/ --all", "BadOption"),
    Mistake("quota of a URL", "quota {b}", "BadOption"),
    Mistake("a limit without --limit", "quota 5GB", "BadOption"),
]
OPTIONS = [
    Mistake("a misspelt option", "pull {b}/d/ data --dry-rum", "BadOption"),
    Mistake(
        "a storage option written as an option of the verb", "pull {b}/d/ data --profile lab", "BadOption"
    ),
    Mistake("a secret written as an option of the verb", "pull {b}/d/ data --secret-key abc", "BadOption"),
    Mistake("a value for a flag", "pull {b}/d/ data --dry-run=yes", "BadOption"),
    Mistake("an option without its value", "pull {b}/d/ data --include", "BadOption"),
    Mistake("a value that is not a choice", "pull {b}/d/ data --verify md4", "BadOption"),
    Mistake("a size with a wrong unit", "pull {b}/d/ data --max-bytes 5X", "BadOption"),
    Mistake("a limit with a wrong unit", "quota tree --limit 5X", "BadOption"),
    Mistake("a limit without its unit", "quota tree --limit 40", "BadOption"),
    Mistake("a folder for a cache without a cache", "samples {b}/d/ --cache-dir data", "BadOption"),
    Mistake("removing a limit that does not exist", "quota tree --limit none", "BadOption"),
    Mistake("a count that is not a number", "pull {b}/d/ data --max-files ten", "BadOption"),
    Mistake("zero concurrent requests", "pull {b}/d/ data --concurrency 0", "BadOption"),
    Mistake("an empty sample", "pull {b}/d/ data --sample 0%", "BadOption"),
    Mistake("a filter that matches nothing", "pull {b}/d/ data --include '*.md4'", "NotFound"),
    Mistake("a glob with an open bracket", "pull {b}/d/ data --include '[a'", "BadOption"),
    Mistake("a time that is none", "pull {b}/d/ data --newer-than yesterday", "BadOption"),
    Mistake("a mirror of what is new", "pull {b}/d/ data --newer-than 7d --delete", "BadOption"),
    Mistake("a glob with an open brace", "pull {b}/d/ data --include '{{a,b'", "BadOption"),
    Mistake("a list of files that does not exist", "pull {b}/d/ data --files-from none", "NotFound"),
    Mistake("a list of files that the source lacks", "pull {b}/d/ data --files-from list.txt", "NotFound"),
    Mistake("an invalid variable name", "pull {b}/d/ data -o 1x", "BadOption", face="cell"),
    Mistake("a mirror of only a part", "pull {b}/d/ data --delete --max-files 3", "BadOption"),
    Mistake("a mirror into the home folder", "pull {b}/d/ ~ --delete", "BadOption"),
    Mistake("a mirror into a folder with other files", "pull {b}/d/ mine --delete", "BadOption"),
    Mistake("parts that are too small for S3", "push tree {b}/p/ --part-size 1MB", "BadOption"),
    Mistake(
        "delete files without verification", "push tree {b}/p/ --delete-source --verify none", "BadOption"
    ),
    Mistake("a listing that deletes", "untar_volumes vols data --list --delete-volumes", "BadOption"),
    Mistake("a storage option without value", "pull {b}/d/ data --option anon", "BadOption"),
    Mistake("a misspelt storage option", "pull {b}/d/ data --option endpoint=x", "BadOption"),
    Mistake(
        "a storage option that is neither true nor false", "pull {b}/d/ data --option anon=ja", "BadOption"
    ),
    Mistake(
        "a variable that is not in the environment", "pull {b}/d/ data --option secret=env:NONE", "BadOption"
    ),
    Mistake("a key without its secret", "pull {b}/d/ data --option key=me", "BadOption"),
    Mistake("an endpoint that is not a URL", "pull {b}/d/ data --option endpoint_url=ftp://x", "BadOption"),
    Mistake("an unknown cluster", "pull {b}/d/ data --cluster here", "BadOption"),
    Mistake("a scheduler without TLS", "pull {b}/d/ data --cluster tcp://10.0.0.1:8786", "BadOption"),
    Mistake(
        "a scheduler of another user without TLS",
        "copy {b}/d/ {b}/c/ --cluster tcp://{theirs}",
        "BadOption",
        place="stranger",
    ),
    Mistake("a cluster for one archive", "pack {b}/d/ {b}/p/x.tar.gz --cluster local", "BadOption"),
    Mistake(
        "a cluster that deletes volumes",
        "untar_volumes vols data --cluster local --delete-volumes",
        "BadOption",
    ),
    Mistake("an unknown addressing style", "pull {b}/d/ data --option addressing_style=dns", "BadOption"),
    Mistake(
        "a file of authorities that does not exist",
        "pull {b}/d/ data",
        "BadOption",
        "{tls} AWS_CA_BUNDLE=none.pem",
    ),
    Mistake("an unknown NBDATA_HOST", "pull {b}/d/ data", "BadOption", "NBDATA_HOST=remote"),
    Mistake(
        "a background without the agent",
        "pull {b}/d/ data -b",
        "BadOption",
        "NBDATA_HOST=inline",
        face="terminal",
    ),
    Mistake("an invalid NBDATA_QUOTA", "pull {b}/d/ data", "BadOption", "NBDATA_QUOTA=much"),
    Mistake("an invalid NBDATA_STALL_TIMEOUT", "pull {b}/d/ data", "BadOption", "NBDATA_STALL_TIMEOUT=soon"),
    Mistake(
        "a runtime folder open to others",
        "pull {b}/d/ data",
        "AccessDenied",
        "NBDATA_RUNTIME_DIR={open_folder}",
    ),
    Mistake(
        "a state folder open to others",
        "pull {b}/d/ data",
        "AccessDenied",
        "NBDATA_STATE_DIR={shared_folder}",
    ),
    Mistake(
        "a state folder with other things in it",
        "pull {b}/d/ data",
        "BadOption",
        "NBDATA_STATE_DIR={used_folder}",
    ),
    Mistake("a relative state folder", "pull {b}/d/ data", "BadOption", "NBDATA_STATE_DIR=state"),
]
STORE = [
    Mistake(
        "no credentials", "pull {b}/d/ data", "AccessDenied", "AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY="
    ),
    Mistake("no such profile", "pull {b}/d/ data --option profile=wrok", "AccessDenied"),
    Mistake("no such connection", "pull {b}/d/ data --option connection=wrok", "NotFound"),
    Mistake("a wrong access key", "pull {b}/d/ data", "AccessDenied", "AWS_ACCESS_KEY_ID=nobody"),
    Mistake("a wrong secret key", "pull {b}/d/ data", "AccessDenied", "AWS_SECRET_ACCESS_KEY=wrong"),
    Mistake("an expired token", "pull s3://bucket/d/ data", "AccessDenied", "{expired}"),
    Mistake("a wrong token", "pull s3://bucket/d/ data", "AccessDenied", "{token}"),
    Mistake("a clock that is wrong", "pull s3://bucket/d/ data", "AccessDenied", "{skewed}"),
    Mistake("an ARN", "ls s3://arn:aws:s3:us-west-2:123456789012:accesspoint/x/data/", "BadOption"),
    Mistake("a server in the URL", "ls s3://store.example.com:9000/bucket/", "BadOption"),
    Mistake("a bucket over its quota", "pull s3://bucket/d/ data", "AccessDenied", "{quota}"),
    Mistake("a store that wants virtual hosts", "pull s3://bucket/d/ data", "BadOption", "{virtual}"),
    Mistake("no right to this bucket", "pull s3://bucket/d/ data", "AccessDenied", "{denied}"),
    Mistake("no right to write", "push tree s3://bucket/p/", "TransferFailed", "{readable}"),
    Mistake("no right to a single object", "pull s3://bucket/x data", "AccessDenied", "{denied}"),
    Mistake("a bucket of another endpoint", "pull s3://bucket/d/ data", "BadOption", "{elsewhere}"),
    Mistake(
        "a host for redirects that is none", "pull {b}/d/ data --option redirects=http://n1", "BadOption"
    ),
    Mistake("no gateway of AIStore", "pull ais://bucket/d/ data", "BadOption", "AIS_ENDPOINT="),
    Mistake("a bucket of another region", "pull s3://bucket/d/ data", "BadOption", "{region}"),
    Mistake("a server that does not speak S3", "pull s3://bucket/d/ data", "StoreUnavailable", "{website}"),
    Mistake("an archived object", "pull s3://bucket/x data", "TransferFailed", "{archived}"),
    Mistake(
        "no server at the endpoint", "pull s3://bucket/d/ data", "StoreUnavailable", "AWS_ENDPOINT_URL={gone}"
    ),
    Mistake("no SSH server there", "pull sftp://user@127.0.0.1:9/x data", "StoreUnavailable"),
    Mistake(
        "a server that does not exist",
        "pull s3://bucket/d/ data",
        "StoreUnavailable",
        "AWS_ENDPOINT_URL=https://s3.example.invalid",
    ),
    Mistake("an unknown authority", "pull s3://bucket/d/ data", "StoreUnavailable", "{tls}"),
    Mistake("https to a server without TLS", "pull s3://bucket/d/ data", "StoreUnavailable", "{no_tls}"),
    Mistake("http to a server with TLS", "pull s3://bucket/d/ data", "StoreUnavailable", "{no_plain}"),
    Mistake("a server that does not speak HTTP", "pull s3://bucket/d/ data", "StoreUnavailable", "{ssh}"),
    Mistake("a proxy that requires a password", "pull s3://bucket/d/ data", "AccessDenied", "{proxy_407}"),
    Mistake(
        "a proxy that requires a password for https",
        "pull s3://bucket/d/ data",
        "AccessDenied",
        "{tunnel_407}",
    ),
    Mistake("a proxy that refuses the store", "pull s3://bucket/d/ data", "AccessDenied", "{tunnel_403}"),
    Mistake("a proxy that is not running", "pull s3://bucket/d/ data", "StoreUnavailable", "{proxy_gone}"),
    Mistake(
        "a proxy that is not a URL",
        "pull s3://bucket/d/ data",
        "BadOption",
        "https_proxy=http://u:w/x@p:1 {tls}",
    ),
    Mistake(
        "a SOCKS proxy", "pull s3://bucket/d/ data", "BadOption", "all_proxy=socks5h://u:word@p:1080 {tls}"
    ),
    Mistake("a proxy that filters", "pull s3://bucket/d/ data", "AccessDenied", "{filtering}"),
    Mistake("a web page that does not exist", "pull http://{web_404}/x.bin data/", "NotFound"),
    Mistake("a web page without permission", "pull http://{web_403}/x.bin data/", "AccessDenied"),
    Mistake("a web page in place of a file", "pull http://{web_page}/x.bin data/", "AccessDenied"),
    Mistake(
        "a way to store that S3 does not have",
        "push tree s3://bucket/p/ --option s3_additional_kwargs.StorageClas=X",
        "BadOption",
    ),
    Mistake(
        "a setting of botocore that nbdata does not have",
        "pull s3://bucket/d/ data --option config_kwargs.use_dualstack_endpoint=true",
        "BadOption",
    ),
    Mistake("Ctrl-C", "pull s3://bucket/d/ data", "Cancelled", "{hangs}"),
]
CHECKS = [
    Mistake("nothing to check", "md5check none", "NotFound"),
    Mistake("no checksums", "md5check tree", "NotFound"),
    Mistake("a checksum file for PATH", "md5check sums/MD5SUMS", "BadOption"),
    Mistake("--against a folder that does not exist", "md5check tree --against none", "NotFound"),
    Mistake("a file that differs", "md5check wrong", "TransferFailed"),
    Mistake("a file that is missing", "md5check sums", "TransferFailed"),
    Mistake("a checksum file that contradicts itself", "md5check twice", "TransferFailed"),
    Mistake("a checksum that is cut off", "md5check unread", "TransferFailed"),
    Mistake("a list with names of files elsewhere", "md5check leading", "TransferFailed"),
    Mistake("write and compare at once", "md5check tree --write --against sums", "BadOption"),
    Mistake("no archive there", "untar_volumes none data", "NotFound"),
    Mistake("a file that is not an archive", "untar_volumes file.txt data", "BadArchive"),
    Mistake("a volume that is missing", "untar_volumes hole data", "MissingVolume"),
    Mistake("a volume that is empty", "untar_volumes empty data", "MissingVolume"),
    Mistake("a volume that is too short", "untar_volumes short data1", "BadArchive"),
    Mistake("an archive of another program", "untar_volumes x.rar data", "BadArchive"),
    Mistake("a truncated archive", "untar_volumes cut.tar.gz data", "BadArchive"),
    Mistake("zeros in place of an archive", "untar_volumes zeros.tar data", "BadArchive"),
    Mistake("--set with an unknown archive", "untar_volumes two data --set none", "NotFound"),
    Mistake("two archives for one folder", "untar_volumes alike data", "BadOption"),
    Mistake("a list of volumes in other folders", "untar_volumes away.lst data", "BadOption"),
    Mistake("checksums of several archives", "untar_volumes two.md5 data", "BadOption"),
    Mistake("a volume that only the checksums name", "untar_volumes listed data", "MissingVolume"),
    Mistake("a volume with another checksum", "untar_volumes unlike data5", "ChecksumMismatch"),
    Mistake("checksums that contradict each other", "untar_volumes disputed data6", "ChecksumMismatch"),
    Mistake("checksums of other volumes", "untar_volumes vols data6 --against two.md5", "NotFound"),
    Mistake(
        "checksums, and no verification",
        "untar_volumes vols data6 --against two.md5 --verify none",
        "BadOption",
    ),
    Mistake("unpack to a file", "untar_volumes vols file.txt", "BadOption"),
    Mistake(
        "members chosen with the option of another verb", "untar_volumes vols data --include a", "BadOption"
    ),
    Mistake("volumes of an archive as samples", "samples vols", "BadOption"),
    Mistake("no folder to unpack into", "untar_volumes vols", "BadOption"),
    Mistake("--skip-written with a store", "untar_volumes vols {b}/p/ --skip-written", "BadOption"),
    Mistake("a size of shards for a folder", "untar_volumes vols data --shard-size 1MB", "BadOption"),
    Mistake("shards among their volumes", "untar_volumes vols vols/x-%06d.tar", "BadOption"),
    Mistake("a truncated zip", "untar_volumes cut.zip data", "BadArchive"),
    Mistake("the last volume of a split zip", "untar_volumes last.zip data", "MissingVolume"),
    Mistake("a zip behind a damaged one", "untar_volumes two.zip data", "BadArchive"),
    Mistake("members that do not exist", "untar_volumes vols data2 --members '*.jpg'", "NotFound"),
    Mistake("a member that would leave the target", "untar_volumes evil.tar data3", "UnsafeMember"),
    Mistake("more data than --max-expansion", "untar_volumes vols data4 --max-expansion 100", "BadArchive"),
    Mistake("an archive that needs much memory", "untar_volumes long.tar.zst data", "BadArchive"),
    Mistake("a window that is too large", "untar_volumes vols data --max-window 4GiB", "BadOption"),
    Mistake("a shard with a large sample", "pack large.tar {b}/p/x-%06d.tar --map true", "BadArchive"),
    Mistake("--max-sample without --map", "pack large.tar {b}/p/x-%06d.tar --max-sample 4GiB", "BadOption"),
    Mistake("shards without a place for their number", "pack {b}/d/ {b}/p/train.tar", "BadOption"),
    Mistake("a folder as the name of an archive", "pack {b}/d/ {b}/p/ --format tar.gz", "BadOption"),
    Mistake("an archive with another extension", "pack {b}/d/ {b}/p/x.zip --format tar", "BadOption"),
    Mistake("volumes that are too small", "pack {b}/d/ {b}/p/x.zip --volume-size 1kB", "BadOption"),
    Mistake("an option of shards for an archive", "pack {b}/d/ {b}/p/x.tar.gz --shuffle", "BadOption"),
    Mistake("an option of archives for shards", "pack {b}/d/ {b}/p/ --md5", "BadOption"),
    Mistake("an invalid time of members", "pack {b}/d/ {b}/p/x.tar.gz --mtime yesterday", "BadOption"),
    Mistake("another program's file in place of an archive", "pack {b}/d/ cut.tar.gz", "BadOption"),
    Mistake("another program's file in place of an FFRecord file", "pack {b}/d/ good.ffr", "BadOption"),
    Mistake("an archive format that is only read", "pack {b}/d/ {b}/p/x.tar.xz", "BadOption"),
    Mistake("an empty archive", "pack {b}/d/ {b}/p/x.tar.gz --include '*.none'", "NotFound"),
    Mistake(
        "FFRecord files with another extension", "pack {b}/d/ {b}/p/x.tar --format ffrecord", "BadOption"
    ),
    Mistake(
        "a single FFRecord file with --shard-count", "pack {b}/d/ {b}/p/x.ffr --shard-count 2", "BadOption"
    ),
    Mistake("an option of FFRecord files for shards", "pack {b}/d/ {b}/p/ --no-names", "BadOption"),
    Mistake(
        "records without names of samples with several fields", "pack fields x.ffr --no-names", "BadOption"
    ),
    Mistake(
        "files of samples beside what they are made of", "pack {b}/d/ {b}/d/new/ --format files", "BadOption"
    ),
    Mistake(
        "files of samples to a target that is not a folder", "pack good.ffr {b}/p --format files", "BadOption"
    ),
    Mistake("files of samples that lie in their source", "pack above/x/ above/ --format files", "BadOption"),
    Mistake(
        "two files with the same name", "pack fields {b}/p/ --format files --rename jpg=cls", "BadOption"
    ),
    Mistake("a record with the name of a folder", "pack clash x.ffr --by file --rename txt=d", "BadOption"),
    Mistake("files shuffled out of their samples", "pack fields x.ffr --by file --shuffle", "BadOption"),
    Mistake("an unknown action", "shards check {b}/x.tar", "BadOption"),
    Mistake("a source that is not shards", "shards ls {b}/d/", "BadOption"),
    Mistake("compressed shards", "pack {b}/d/ {b}/p/x-%06d.tar.gz", "BadOption"),
    Mistake(
        "fewer numbers than shards", "pack {b}/ {b}/p/x-{{0..1}}.tar --by file --shard-count 3", "BadOption"
    ),
    Mistake("a new name without an old one", "pack {b}/d/ {b}/p/ --rename jpg", "BadOption"),
    Mistake("a condition that ends too early", "pack {b}/d/ {b}/p/ --select 'txt and size <'", "BadOption"),
    Mistake("a condition in Python", "pack {b}/d/ {b}/p/ --select 'len(txt) < 100'", "BadOption"),
    Mistake("a slice that is none", "pack {b}/d/ {b}/p/ --slice 10-20", "BadOption"),
    Mistake("a field that no sample has", "pack {b}/d/ {b}/p/ --fields jpg,txt", "BadOption"),
    Mistake("keys without a number", "pack {b}/d/ {b}/p/ --keys train", "BadOption"),
    Mistake("samples sorted by a field that one lacks", "pack fields {b}/p/ --sort txt", "BadOption"),
    Mistake("a slice of shards of a folder of files", "pack {b}/d/ {b}/p/ --shard-slice :2", "BadOption"),
    Mistake("a list without a folder", "pack large.tar {b}/p/ --files-from fields/12.cls", "BadOption"),
    Mistake("a stream that is shuffled", "pack - {b}/p/ --shuffle", "BadOption", face="terminal"),
    Mistake("a stream that is not sent", "pack - {b}/p/", "BadArchive", face="terminal"),
    Mistake("a condition that matches no sample", "pack {b}/ {b}/p/ --by file --select none", "NotFound"),
    Mistake(
        "a command for samples that there is not", "pack {b}/d/ {b}/p/ --map no-such-command", "BadOption"
    ),
    Mistake("a command that fails for a sample", "pack {b}/d/ {b}/p/ --map 'ls /nowhere'", "NbdataError"),
    Mistake("--map in the background", "pack {b}/d/ {b}/p/ --map true -b", "BadOption"),
    Mistake(
        "a number of shards of changed samples", "pack {b}/d/ {b}/p/ --map true --shard-count 3", "BadOption"
    ),
    Mistake("a module that does not exist", "convert none.py tree data", "NotFound"),
    Mistake("a module without get_datasets", "convert empty.py tree data", "BadOption"),
    Mistake("a data set that fails", "convert fails.py tree data", "NbdataError"),
    Mistake("a data set in a store", "convert empty.py {b}/d/ data", "BadOption"),
    Mistake("a split whose name is taken", "convert split.py tree stands", "BadOption"),
    Mistake("a conversion into its own input", "convert split.py tree tree", "BadOption"),
    Mistake("samples that are not arrays", "convert split.py tree data --store npy", "BadOption"),
    Mistake("a conversion in the background", "convert split.py tree data -b", "BadOption"),
    Mistake("an option of mmdet3d", "convert split.py tree data --key pts_filename", "BadOption"),
    Mistake(
        "a configuration that only says more when it runs", "convert mmdet3d config.py data", "BadOption"
    ),
    Mistake("a configuration without data", "convert mmdet3d empty.py data", "BadOption"),
    Mistake(
        "a cache without room for an item",
        "cache_stream {b}/d/ --by file --max-size 1",
        "BadOption",
        face="cell",
    ),
    Mistake("a cache without a valid size", "samples {b}/d/ --cache zz", "BadOption"),
    Mistake("a cache too small for its records", "samples {b}/d/ --cache 40kB", "BadOption"),
    Mistake("a stream of a place that does not exist", "cache_stream {b}/none/", "NotFound", face="cell"),
    Mistake("an unknown unit of a stream", "cache_stream {b}/d/ --by volume", "BadOption"),
    Mistake(
        "a stream of shards where there are none", "cache_stream {b}/d/ --by shard", "BadOption", face="cell"
    ),
    Mistake("an invalid part", "cache_stream {b}/d/ --part 4/4", "BadOption"),
    Mistake(
        "a stream without a command",
        "cache_stream {b}/d/ --by file --max-size 1MB",
        "BadOption",
        face="terminal",
    ),
    Mistake("a job that does not exist", "transfers zzzz --wait", "NotFound"),
    Mistake("--pause without a job", "transfers --pause", "BadOption"),
    Mistake("--pause with --cancel", "transfers zzzz --pause --cancel", "BadOption"),
    Mistake("an unknown agent command", "agent stpo", "BadOption", face="terminal"),
]
DISK = [
    Mistake("a folder with the name of a file", "pull {b}/d/ stands", "TransferFailed"),
    Mistake("a key that is not a valid file name", "pull {b}/odd/ data5", "TransferFailed"),
    Mistake("a link that leads to itself", "md5check circle/sub", "NbdataError"),
    Mistake("a limit that is too low", "pull {b}/d/ limited", "NotEnoughSpace"),
    Mistake("a disk that is too small", "pull {b}/d/ {small}/data", "NotEnoughSpace", place="mount"),
    Mistake("a disk without inodes", "pull {b}/d/ {no_inodes}/data", "NotEnoughSpace", place="mount"),
    Mistake("a disk that is read-only", "pull {b}/d/ {read_only}/data", "AccessDenied", place="mount"),
    Mistake("a target without permission", "pull {b}/d/ {closed}/data", "AccessDenied", place="nobody"),
    Mistake(
        "a target that may not be looked into", "pull {b}/d/ {hidden}/data", "AccessDenied", place="nobody"
    ),
    Mistake("a file that may not be read", "push {closed}/tree {b}/p/", "TransferFailed", place="nobody"),
    Mistake("a folder that may not be read", "md5check {hidden}", "AccessDenied", place="nobody"),
    Mistake(
        "volumes that may not be read",
        "untar_volumes {closed}/x.tar data",
        "AccessDenied",
        place="nobody",
    ),
    Mistake("a folder that may not be cleaned", "cleanup {hidden}", "AccessDenied", place="nobody"),
]
RECORDS = [
    Mistake("an FFRecord file that was never finished", "samples unfinished.ffr", "BadArchive"),
    Mistake("an FFRecord file of a few bytes", "samples short.ffr", "BadArchive"),
    Mistake("a truncated FFRecord file", "samples cut.ffr", "BadArchive"),
    Mistake("an FFRecord file with a damaged header", "samples spoilt.ffr", "ChecksumMismatch"),
    Mistake("something else of that name", "samples photo.ffr", "BadArchive"),
    Mistake("filters for shards", "samples two/one.tar --include '*.jpg'", "BadOption"),
    Mistake("selection by names in a file without names", "samples good.ffr --include '*.jpg'", "BadOption"),
    Mistake("a folder without FFRecord files", "samples {b}/d.ffr/", "NotFound"),
]

SECTIONS = {
    "Paths": PATHS,
    "Options": OPTIONS,
    "The store and the way to it": STORE,
    "Checksums, archives, streams and jobs": CHECKS,
    "FFRecord files": RECORDS,
    "The disk": DISK,
}
