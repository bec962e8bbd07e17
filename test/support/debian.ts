// What the tests need from the machine: root, Debian, and Debian's packages. Says why something cannot be had; in
// CI that is a failure, elsewhere the tests concerned are skipped.

import { existsSync } from "node:fs";

export const inCi = process.env["CI"] === "true";

/** Programs that tests call, and the Debian package each comes from. */
const packages: Record<string, string> = {
  "/usr/bin/nebula": "nebula",
  "/usr/bin/nebula-cert": "nebula",
  "/usr/sbin/ip": "iproute2",
  "/usr/bin/ping": "iputils-ping",
  "/usr/bin/strace": "strace",
  "/usr/bin/openssl": "openssl",
  "/usr/bin/xz": "xz-utils",
  "/usr/bin/bsdtar": "libarchive-tools",
  "/usr/bin/minisign": "minisign",
  "/usr/bin/systemd-analyze": "systemd",
  "/usr/bin/dbus-daemon": "dbus-daemon",
  "/usr/bin/gnome-keyring-daemon": "gnome-keyring",
  "/usr/bin/secret-tool": "libsecret-tools",
};

/** A sentence that says why packages cannot be installed here, or undefined. */
export function cannotInstall(): string | undefined {
  if (!existsSync("/usr/bin/apt-get") || !existsSync("/etc/debian_version")) return "this is not Debian";
  return process.getuid?.() === 0 ? undefined : "not root";
}

/** Runs a program to its end and returns its standard output; throws with its words if it fails. */
export function runSync(argv: string[], options: { cwd?: string } = {}): string {
  const result = Bun.spawnSync(argv, {
    ...options,
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C.UTF-8" },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  if (result.exitCode === 0) return result.stdout.toString();
  throw new Error(
    `${argv.join(" ")}: exit ${result.exitCode}\n${result.stdout.toString()}${result.stderr.toString()}`.trim(),
  );
}

/** Installs what is missing; a sentence that says why it is still missing, or undefined. */
export function installMissing(): string | undefined {
  const missing = () => Object.keys(packages).filter((program) => !existsSync(program));
  if (missing().length === 0) return undefined;
  const reason = cannotInstall();
  if (reason !== undefined) return `${missing().join(", ")} not there, and ${reason}`;
  const names = [...new Set(missing().map((program) => packages[program] ?? program))];
  const apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"];
  try {
    runSync([...apt, "update"]);
    runSync([...apt, "install", "--no-install-recommends", ...names]);
  } catch (error) {
    return `Cannot install ${names.join(", ")}: ${String(error)}`;
  }
  return missing().length === 0 ? undefined : `${missing().join(", ")} not there after installing`;
}
