// Every name and place of the product (decisions 1). A vendor rebrands it by changing this file alone.

export const brand = {
  /** The executable. */
  executable: "agent",
  /** Package, vendor directory, application id, keyring service, Unix group. */
  id: "overlay-agent",
  title: "Overlay Agent",
  /** Environment variables are this and the flag in capitals. */
  envPrefix: "AGENT_",
  launchdLabel: "io.overlay-agent.daemon",
  /** Where published releases of the product lie; `--release-url` and a control plane's /releases/ replace it. */
  releaseUrl: "https://github.com/overlay-agent/agent/releases/latest/download/",
  /** Where one version's release lies; {version} is filled in. */
  releaseVersionUrl: "https://github.com/overlay-agent/agent/releases/download/v{version}/",
  /** Minisign public keys whose releases are trusted; a release build adds the key that it signs with. */
  releaseKeys: [] as readonly string[],
  /** Where the engine's own release archives lie; {version} is filled in. */
  engineReleaseUrl: "https://github.com/slackhq/nebula/releases/download/v{version}/",
  /** Leads to the engine's newest release: its redirect ends in /v1.2.3. */
  engineLatestUrl: "https://github.com/slackhq/nebula/releases/latest",
  /** Domain under which X.509 names of nodes are made: <node>.<org>.internal. */
  internalDomain: "internal",
} as const;

/** The hidden first word by which the executable answers as the child that asks the keyring. */
export const keyringWord = "__keyring";

export type Places = {
  /** The product itself. */
  executable: string;
  configRoot: string;
  overlayBinary: string;
  socketPath: string;
  pipeName: string;
  stateDb: string;
  /** How the daemon is reached, and whether it starts the teams that it finds. */
  ipcMode: "socket" | "pipe";
  autostart: boolean;
  /** Where a system's own package puts the engine; used only if root owns the file. */
  packagedEngines: readonly string[];
};

/** Default places by operating system (`process.platform` values; anything unknown is treated as Unix). */
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
    packagedEngines: ["/usr/bin/nebula", "/usr/sbin/nebula", "/usr/local/bin/nebula"],
  };
}

/** Where `agent serve` keeps its data unless told otherwise (decisions 11). */
export function defaultServerDirectory(env: Record<string, string | undefined>, isRoot: boolean): string {
  if (isRoot) return `/var/lib/${brand.id}/server/`;
  const share = env["XDG_DATA_HOME"] ?? `${env["HOME"] ?? "/tmp"}/.local/share`;
  return `${share}/${brand.id}/server/`;
}
