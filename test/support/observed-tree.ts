// A Debian tree in which one command runs at a time, observed from outside: the tree before and after, the programs that
// it starts (strace), and the requests that reach the control plane.

import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
  type Stats,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { runSync } from "./debian.ts";
import { overlayTree } from "./debian-tree.ts";
import { machineTree } from "./nspawn.ts";

export type Entry = { mode: string; owner: string; content: string; isDirectory: boolean };
/** `paths`: those that differ, or once differed, from the tree below. */
export type Snapshot = { paths: readonly string[]; get(path: string): Entry | undefined };
export type Observed = { status: number; stdout: string; stderr: string; started: string[][] };
export type ObserveOptions = {
  input?: string;
  /** For a service: run until this text is printed, call `meanwhile`, then end it by SIGTERM. */
  until?: string;
  /** A file that the service writes last, maybe after that text; waited for at most 10 s. */
  lastFile?: string;
  meanwhile?: () => void;
};

export type ObservedTree = Disposable & {
  root: string;
  snapshot(): Snapshot;
  run(argv: readonly string[], options?: ObserveOptions): Promise<Observed>;
};

/** systemd's place is taken by a program that remembers a start, but starts no unit except the guard of an update. */
const systemctl = `#!/bin/sh
case "$*" in
  *is-active*|*is-enabled*) exit 3;;
  *--property=MainPID,ExecStart*) echo MainPID=0;;
  *--property=ActiveState*) read -r state < /run/systemd/started && echo "ActiveState=$state";;
  *" start "*) echo active > /run/systemd/started;;
  *" disable --now "*) echo inactive > /run/systemd/started;;
  *restart*--no-block*-guard.service) setsid sh -c "$(sed -n s/^ExecStart=//p /etc/systemd/system/*-guard.service)" >&- 2>&- &;;
esac
exit 0
`;
const groupadd = "#!/bin/sh\nexit 0\n";

/** With this executable at its usual place. */
export function observedTree(agent: string): ObservedTree {
  const below = machineTree();
  const tree = overlayTree(below);
  const { root } = tree;
  const upper = join(root, "../upper");
  const trace = join(root, "../trace");
  runSync(["mount", "-t", "proc", "proc", join(root, "proc")]);
  for (const each of ["run/systemd/system", "dev/net"]) mkdirSync(join(root, each), { recursive: true });
  runSync(["mknod", join(root, "dev/net/tun"), "c", "10", "200"]);
  const program = (path: string, content: string) =>
    writeFileSync(join(root, path), content, { mode: 0o755 });
  program("usr/bin/systemctl", systemctl);
  program("usr/sbin/groupadd", groupadd);
  cpSync(agent, join(root, "usr/local/bin/agent"));
  return {
    root,
    snapshot() {
      const seen = new Map(pathsBelow(upper, "").map((path) => [path, entryAt(join(upper, path))]));
      return {
        paths: [...seen.keys()],
        get: (path) => (seen.has(path) ? seen.get(path) : entryAt(join(below, path))),
      };
    },
    async run(argv, { input = "", until, lastFile, meanwhile } = {}) {
      const observe = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-e",
        "trace=execve",
        "-s",
        "4096",
        "-o",
        trace,
      ];
      const inside = ["chroot", root, "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=/root"];
      // A test that serves in its own process has a strict umask.
      const usual = ["/bin/sh", "-c", 'umask 022 && exec "$@"', "sh"];
      const child = Bun.spawn([...usual, ...observe, ...inside, ...argv], {
        stdin: new Blob([input]),
        stdout: "pipe",
        stderr: "pipe",
      });
      let said = "";
      const collect = async (stream: ReadableStream<Uint8Array>) => {
        let text = "";
        const decoder = new TextDecoder();
        for await (const chunk of stream) {
          text += decoder.decode(chunk);
          said += decoder.decode(chunk);
        }
        return text;
      };
      const texts = Promise.all([collect(child.stdout), collect(child.stderr)]);
      if (until !== undefined) {
        while (!said.includes(until) && child.exitCode === null) await Bun.sleep(20);
        const end = Date.now() + 10_000;
        const isWritten = () => lastFile === undefined || existsSync(join(root, lastFile));
        while (!isWritten() && child.exitCode === null && Date.now() < end) await Bun.sleep(20);
        meanwhile?.();
        const [service] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").split(" ");
        if (service !== undefined && service !== "") process.kill(Number(service), "SIGTERM");
      }
      const [[stdout, stderr], status] = [await texts, await child.exited];
      return { status, stdout, stderr, started: readTrace(readFileSync(trace, "utf8"), argv[0] ?? "") };
    },
    [Symbol.dispose]() {
      runSync(["umount", "--lazy", join(root, "proc")]);
      tree[Symbol.dispose]();
    },
  };
}

/** The programs that were started after the observed one. */
function readTrace(text: string, first: string): string[][] {
  const lines = text.split("\n");
  const started = lines.flatMap((each, at) => {
    const line = finished(each, lines.slice(at + 1));
    const found = /execve\("[^"]*", (\[.*?\]), 0x\w+ .*= 0$/.exec(line);
    if (found === null) return [];
    return [v.parse(v.pipe(v.string(), v.parseJson(), v.array(v.string())), found[1])];
  });
  return started.slice(started.findIndex(([program]) => program === first) + 1);
}

/** While a call takes place, another process may take its turn: strace then ends the line, and prints the rest later. */
function finished(line: string, later: readonly string[]): string {
  const [, pid, begun] = /^(\d+ +)(.*) <unfinished \.\.\.>$/.exec(line) ?? [];
  if (pid === undefined) return line;
  const resumed = `${pid}<... execve resumed>`;
  return `${begun}${later.find((each) => each.startsWith(resumed))?.slice(resumed.length)}`;
}

/** Large files are known by size and time. */
const wholeBytes = 1024 * 1024;

function pathsBelow(upper: string, path: string): string[] {
  return readdirSync(join(upper, path), { withFileTypes: true }).flatMap((entry) => {
    const inner = `${path}/${entry.name}`;
    return [inner, ...(entry.isDirectory() ? pathsBelow(upper, inner) : [])];
  });
}

function entryAt(path: string): Entry | undefined {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  // overlayfs marks what was removed from the tree below with a device 0:0.
  if (stat === undefined || (stat.isCharacterDevice() && stat.rdev === 0)) return undefined;
  const mode = `0${(stat.mode & 0o7777).toString(8)}`;
  const isDirectory = stat.isDirectory();
  return { mode, owner: `${stat.uid}:${stat.gid}`, content: contentAt(path, stat), isDirectory };
}

function contentAt(path: string, stat: Stats): string {
  if (stat.isSymbolicLink()) return `→ ${readlinkSync(path)}`;
  if (!stat.isFile()) return stat.isDirectory() ? "" : "special";
  return stat.size > wholeBytes ? `${stat.size} ${stat.mtimeMs}` : readFileSync(path, "latin1");
}
