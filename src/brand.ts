// All names and paths of the product. To rebrand it, change only this file.

export const brand = {
  /** The executable. */
  executable: "agent",
  /** Package, vendor directory, application id, keyring service, Unix group. */
  id: "overlay-agent",
  title: "Overlay Agent",
  /** The environment variable of a flag is this prefix and the flag in capitals. */
  envPrefix: "AGENT_",
  launchdLabel: "io.overlay-agent.daemon",
  /** Default address where release builds are published. */
  releaseUrl: "https://github.com/overlay-agent/agent/releases/latest/download/",
  /** Where the documents can be read. */
  docsUrl: "https://github.com/overlay-agent/agent/blob/main/docs/",
  /** Trusted minisign public keys. A release build adds the key that it signs with. */
  releaseKeys: [] as readonly string[],
  /** Address of the engine's own release archives. */
  engineReleaseUrl: "https://github.com/slackhq/nebula/releases/download/v{version}/",
  /** Redirects to the engine's newest release, whose address ends in /v1.2.3. */
  engineLatestUrl: "https://github.com/slackhq/nebula/releases/latest",
  /** In the environment of the process that takes over a running control plane: the id of the former process. */
  successorVariable: "OVERLAY_AGENT_SUCCESSOR_OF",
  /** Every join key begins with it; a digit follows (join-key.ts). */
  joinKeyPrefix: "oaj",
  /** Domain of the X.509 names of nodes: <node>.<org>.internal. */
  internalDomain: "internal",
} as const;

/**
 * The file with the address of releases, which the installer and the packages write. It is beside the executable, whose build
 * holds the publisher's key: /usr/local/lib/overlay-agent/releases.url for /usr/local/bin/agent.
 */
export function releaseAddressPath(executable: string, platform: string): string {
  return platform === "win32"
    ? executable.replace(/[^\\/]*$/, "releases.url")
    : executable.replace(/\/[^/]*\/[^/]*$/, `/lib/${brand.id}/releases.url`);
}

/** Hidden first argument that makes the executable run as the child process for keyring access. */
export const keyringWord = "__keyring";
/** The same for the child process that examines the pages of a control plane's database. */
export const pagesWord = "__pages";

export type Places = {
  /** The agent's executable. */
  executable: string;
  configRoot: string;
  overlayBinary: string;
  socketPath: string;
  pipeName: string;
  stateDb: string;
  /** How clients reach the daemon. */
  ipcMode: "socket" | "pipe";
  /** Whether the daemon starts the organizations that it finds. */
  autostart: boolean;
  /** Paths of the engine in packages of the system. An engine that is found there, and that --overlay-binary does not name, is used only if root owns the file. */
  packagedEngines: readonly string[];
};

/** Default paths for a `process.platform` value. Unknown platforms count as Unix. */
export function defaultPlaces(platform: string, env: Record<string, string | undefined>): Places {
  if (platform === "win32") {
    const data = `${env["ProgramData"] ?? "C:\\ProgramData"}\\${brand.id}`;
    const programs = `${env["ProgramFiles"] ?? "C:\\Program Files"}\\${brand.id}`;
    return {
      executable: `${programs}\\${brand.executable}.exe`,
      configRoot: `${data}\\`,
      overlayBinary: `${programs}\\overlay.exe`,
      socketPath: `${data}\\cmd.sock`,
      pipeName: `\\\\.\\pipe\\${brand.id}.cmd`,
      stateDb: `${data}\\state.db`,
      ipcMode: "pipe",
      autostart: false,
      packagedEngines: [],
    };
  }
  return {
    executable: `/usr/local/bin/${brand.executable}`,
    configRoot: `/etc/${brand.id}/`,
    overlayBinary: "/usr/local/bin/overlay",
    socketPath: `/var/run/${brand.id}/cmd.sock`,
    pipeName: `\\\\.\\pipe\\${brand.id}.cmd`,
    stateDb: `/var/lib/${brand.id}/state.db`,
    ipcMode: "socket",
    autostart: platform === "linux",
    packagedEngines: [
      // Homebrew on Apple processors.
      ...(platform === "darwin" ? ["/opt/homebrew/bin/nebula"] : []),
      "/usr/bin/nebula",
      "/usr/sbin/nebula",
      "/usr/local/bin/nebula",
    ],
  };
}

/**
 * Directory of the profiles that `agent login` stores for this user. Undefined without a home, as in a service: never a
 * directory that other users can write, because a profile decides where commands work.
 */
export function profilesDirectory(
  platform: string,
  env: Record<string, string | undefined>,
): string | undefined {
  if (platform === "win32") {
    return env["APPDATA"] === undefined ? undefined : `${env["APPDATA"]}\\${brand.id}\\profiles`;
  }
  const config = homeDirectory("XDG_CONFIG_HOME", ".config", env);
  return config === undefined ? undefined : `${config}/${brand.id}/profiles`;
}

/** The file in which the service of names says how it serves them: in the RuntimeDirectory of its unit. */
export const namesStatePath = `/run/${brand.id}-names/state.json`;

/** Data directory of the control plane for root. */
export const rootServerDirectory = `/var/lib/${brand.id}/server/`;

/** Default data directory of `agent serve`. Undefined without a home, for the same reason: it holds the keys of all CAs. */
export function defaultServerDirectory(
  env: Record<string, string | undefined>,
  isRoot: boolean,
): string | undefined {
  if (isRoot) return rootServerDirectory;
  const share = homeDirectory("XDG_DATA_HOME", ".local/share", env);
  return share === undefined ? undefined : `${share}/${brand.id}/server/`;
}

/** An empty variable counts as unset (XDG Base Directory Specification). */
function homeDirectory(
  variable: string,
  below: string,
  env: Record<string, string | undefined>,
): string | undefined {
  const home = env["HOME"] || undefined;
  return env[variable] || (home === undefined ? undefined : `${home}/${below}`);
}
