// What tests need from the machine: root, Debian, and Debian's packages. If something is missing, tests fail in CI and are
// skipped with the reason elsewhere.

import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

export const inCi = process.env["CI"] === "true";

/**
 * Without the parts around the pages that Debian's `chromium` has, which take half of the processor time of a test. Not
 * the script of this name in /usr/bin: it is a parent of the browser, and leaves it behind when it is killed.
 */
export const chromiumPath = "/usr/lib/chromium/chromium-headless-shell";

/** Programs that tests call, with their Debian packages. */
const packages: Record<string, string> = {
  "/usr/bin/nebula": "nebula",
  "/usr/bin/nebula-cert": "nebula",
  "/usr/sbin/ip": "iproute2",
  "/usr/sbin/tc": "iproute2",
  "/usr/bin/ping": "iputils-ping",
  "/usr/bin/iperf3": "iperf3",
  "/usr/sbin/nft": "nftables",
  "/usr/bin/tcpdump": "tcpdump",
  "/usr/sbin/miniupnpd": "miniupnpd-nftables",
  "/usr/bin/strace": "strace",
  "/usr/bin/wrk": "wrk",
  "/usr/bin/musl-gcc": "musl-tools",
  "/usr/sbin/haproxy": "haproxy",
  "/usr/sbin/exim4": "exim4-daemon-light",
  "/usr/bin/openssl": "openssl",
  "/usr/sbin/rsyslogd": "rsyslog rsyslog-gnutls",
  "/usr/bin/xmllint": "libxml2-utils",
  "/usr/bin/plistutil": "libplist-utils",
  "/usr/lib/wine/wine64": "wine64",
  "/usr/lib/wine/wineserver64": "wine64",
  "/usr/bin/x86_64-w64-mingw32-ld": "binutils-mingw-w64-x86-64",
  "/usr/bin/x86_64-w64-mingw32-dlltool": "binutils-mingw-w64-x86-64",
  "/usr/bin/zstd": "zstd",
  "/usr/bin/promtool": "prometheus",
  "/usr/bin/git": "git",
  "/usr/bin/go": "golang-go",
  "/usr/bin/bsdtar": "libarchive-tools",
  "/usr/bin/minisign": "minisign",
  "/usr/bin/systemd-analyze": "systemd",
  "/usr/bin/systemd-nspawn": "systemd-container",
  "/usr/bin/mmdebstrap": "mmdebstrap",
  "/usr/bin/umoci": "umoci",
  "/usr/bin/gpg": "gnupg",
  "/usr/bin/createrepo_c": "createrepo-c",
  "/usr/bin/lintian": "lintian",
  "/usr/bin/rpm": "rpm",
  "/usr/bin/man": "man-db",
  "/usr/bin/shellcheck": "shellcheck",
  "/usr/bin/mksh": "mksh",
  "/usr/bin/posh": "posh",
  "/usr/bin/ps": "procps",
  "/usr/bin/curl": "curl",
  "/usr/bin/wget": "wget",
  "/usr/bin/dbus-daemon": "dbus-daemon",
  "/usr/bin/dbus-send": "dbus-bin",
  "/usr/bin/gnome-keyring-daemon": "gnome-keyring",
  "/usr/bin/secret-tool": "libsecret-tools",
  "/usr/bin/faketime": "faketime",
  [chromiumPath]: "chromium-headless-shell",
  "/usr/bin/pngquant": "pngquant",
  "/usr/share/fonts/opentype/inter/Inter-Regular.otf": "fonts-inter",
  "/usr/bin/firefox-esr": "firefox-esr",
  "/usr/bin/WebKitWebDriver": "webkit2gtk-driver",
  "/usr/bin/Xvfb": "xvfb",
  "/usr/bin/qemu-aarch64": "qemu-user",
  "/usr/bin/qemu-system-x86_64": "qemu-system-x86",
  "/usr/sbin/ethtool": "ethtool",
  "/usr/bin/ansible-playbook": "ansible-core",
  "/usr/bin/ssh": "openssh-client",
  "/usr/bin/ssh-keygen": "openssh-client",
  "/lib/ld-musl-x86_64.so.1": "musl",
  "/usr/bin/g++": "g++",
  "/usr/lib/postgresql/15/bin/postgres": "postgresql-15",
  "/usr/sbin/pgbouncer": "pgbouncer",
  // Without the second, apt chooses a database server for the first.
  "/usr/bin/glewlwyd": "glewlwyd dbconfig-sqlite3",
};

/** Files that are there before a package is installed, by its name: as Debian has it, it starts a service. */
const prepared: Record<string, () => void> = {
  "postgresql-15"() {
    const settings = "/etc/postgresql-common/createcluster.conf";
    mkdirSync(dirname(settings), { recursive: true });
    if (!existsSync(settings)) writeFileSync(settings, "create_main_cluster = false\n");
  },
  /** For the whole network, with the password of every new installation. */
  glewlwyd: () => mask("glewlwyd"),
  pgbouncer: () => mask("pgbouncer"),
  rsyslog: () => mask("rsyslog"),
  prometheus: () => mask("prometheus"),
};

function mask(service: string): void {
  const unit = `/etc/systemd/system/${service}.service`;
  mkdirSync(dirname(unit), { recursive: true });
  if (!existsSync(unit)) symlinkSync("/dev/null", unit);
}

/** The reason why packages cannot be installed here, or undefined. */
export function cannotInstall(): string | undefined {
  if (!existsSync("/usr/bin/apt-get") || !existsSync("/etc/debian_version")) return "this is not Debian";
  return process.getuid?.() === 0 ? undefined : "not root";
}

/** Runs a program and returns its standard output. Throws with its error output if it fails. */
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

/** Programs for an engine in a network of namespaces. */
export const enginePrograms = ["/usr/bin/nebula", "/usr/bin/nebula-cert", "/usr/sbin/ip", "/usr/bin/ping"];

/**
 * Go comes with the first engine that is built, where the machine has none of its own; the others with the soak tests that
 * need them.
 */
const rare = [
  "/usr/bin/go",
  "/usr/sbin/pgbouncer",
  "/usr/bin/firefox-esr",
  "/usr/bin/WebKitWebDriver",
  "/usr/bin/Xvfb",
];
const usual = Object.keys(packages).filter((program) => !rare.includes(program));

/** Installs the missing ones of `programs`. Returns the reason why one is still missing, or undefined. */
export function installMissing(programs: readonly string[] = usual): string | undefined {
  const missing = () => programs.filter((program) => !existsSync(program));
  if (missing().length === 0) return undefined;
  const reason = cannotInstall();
  if (reason !== undefined) return `${missing().join(", ")} not there, and ${reason}`;
  const names = missing().flatMap((program) => (packages[program] ?? program).split(" "));
  const refused = installPackages([...new Set(names)]);
  if (refused !== undefined || missing().length === 0) return refused;
  return `${missing().join(", ")} not there after installing`;
}

/** Installs packages; other processes may install at the same time. Returns the reason why it cannot, or undefined. */
function installPackages(names: readonly string[]): string | undefined {
  const apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"];
  try {
    for (const name of names) prepared[name]?.();
    // A failed refresh of the lists is not fatal, but a missing package is.
    Bun.spawnSync([...apt, "update"], { stdin: "ignore", stdout: "ignore", stderr: "ignore" });
    runSync([...apt, "install", "--no-install-recommends", ...names]);
    return undefined;
  } catch (error) {
    return `Cannot install ${names.join(", ")}: ${String(error)}`;
  }
}

/** This machine's release of Debian, by its code name. */
export function debianRelease(): string {
  return /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "stable";
}

/** The mirror of this machine's apt. */
export function debianMirror(): string {
  const format = ["--format", "$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT)"];
  const targets = runSync(["apt-get", "indextargets", ...format, "Identifier: Packages"]).split("\n");
  const rows = targets.map((line) => line.split(" "));
  const release = debianRelease();
  const mirror = rows.find(([, ...names]) => names.includes(release) && names.includes("main"))?.[0];
  if (mirror === undefined) throw new Error(`apt has no source of ${release} main`);
  return mirror;
}
