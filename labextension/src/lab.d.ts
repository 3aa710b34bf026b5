/** What the panel needs of packages that JupyterLab brings along; the panel is not built with them. */

declare module '@jupyterlab/filebrowser' {
  export const FileDialog: {
    getExistingDirectory(options: {
      manager: unknown;
      title: string;
      defaultPath?: string;
    }): Promise<{ button: { accept: boolean }; value: { path: string }[] | null }>;
  };
}
