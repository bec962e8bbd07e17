// Debian machines that systemd boots inside systemd-nspawn, in a network namespace of a test. Each machine is an overlay
// over one tree, and keeps its changes over reboots.

import { describe } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { inCi, installMissing } from "./debian.ts";
import { cannotMakeTrees, debianTree, overlayTree } from "./debian-tree.ts";

/** What every machine has. */
export const machinePackages =
  "systemd systemd-sysv dbus kmod iproute2 iputils-ping nebula ca-certificates curl xz-utils".split(" ");
const readyMs = 120_000;
let made = 0;

/** The tree that machines are overlays of. */
export const machineTree = () => debianTree("booted", machinePackages);

/** Tests that boot machines. They are skipped where that is impossible; in CI that is an error. */
export function describeMachine(name: string, tests: () => void): void {
  const reason = cannotBoot();
  if (reason !== undefined && inCi) throw new Error(`${name}: no machine can be booted: ${reason}`);
  describe.skipIf(reason !== undefined)(name, tests);
}

/** The reason why no machine can be booted here, or undefined. */
function cannotBoot(): string | undefined {
  const reason = cannotMakeTrees() ?? installMissing(["/usr/bin/systemd-nspawn"]);
  if (reason !== undefined) return reason;
  try {
    machineTree();
  } catch (error) {
    return String(error);
  }
  return existsSync("/dev/net/tun") ? undefined : "there is no /dev/net/tun";
}

export type MachineResult = { status: number; stdout: string; stderr: string };

export type Machine = AsyncDisposable & {
  /** Its root directory on this machine. */
  root: string;
  /** Runs a shell script inside. */
  run(script: string, timeoutMs?: number): Promise<MachineResult>;
  /** Like run, but throws unless the exit status is 0. Returns the trimmed standard output. */
  must(script: string, timeoutMs?: number): Promise<string>;
  /** Runs the script every 200 ms until its exit status is 0. Throws after `timeoutMs`. Returns the time in ms. */
  until(script: string, timeoutMs: number): Promise<number>;
  /** Resolves when systemd has started all units. Returns ms since power on. */
  boot(): Promise<number>;
  /** Shuts down cleanly. */
  powerOff(): Promise<void>;
  /** A power cut: no program inside can react. */
  cutPower(): Promise<void>;
};

/**
 * Creates a machine without booting it. `namespace`: a configured namespace of `ip netns`. `layer`: a directory with
 * additional files. `base`: the tree that it is an overlay of.
 */
export function makeMachine(namespace: string, layer?: string, base: string = machineTree()): Machine {
  const tree = overlayTree(base, layer === undefined ? [] : [layer]);
  const { root } = tree;
  const name = `oat${process.pid}-${made++}`;
  let nspawn: Bun.Subprocess | undefined;

  const run = async (script: string, timeoutMs = 60_000): Promise<MachineResult> => {
    const leader = leaderOf(nspawn?.pid);
    if (!isUp(leader)) return { status: 255, stdout: "", stderr: "the machine is off" };
    const child = Bun.spawn(
      ["nsenter", `--target=${leader}`, "--all", "--root", "--wd", "/bin/sh", "-c", script],
      {
        env: {
          PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
          LC_ALL: "C.UTF-8",
          HOME: "/root",
        },
        stdin: "ignore",
        stdout: "pipe",
        stderr: "pipe",
        timeout: timeoutMs,
        killSignal: "SIGKILL",
      },
    );
    const [stdout, stderr, status] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return { status, stdout, stderr };
  };

  const must = async (script: string, timeoutMs?: number): Promise<string> => {
    const { status, stdout, stderr } = await run(script, timeoutMs);
    if (status !== 0) throw new Error(`${script}: exit ${status}\n${stdout}${stderr}`);
    return stdout.trim();
  };

  const until = async (script: string, timeoutMs: number): Promise<number> => {
    const begin = performance.now();
    for (;;) {
      const { status, stdout, stderr } = await run(script);
      const passed = performance.now() - begin;
      if (status === 0) return passed;
      if (passed > timeoutMs)
        throw new Error(`${script}: exit ${status} after ${timeoutMs} ms\n${stdout}${stderr}`);
      await Bun.sleep(200);
    }
  };

  const end = async (): Promise<void> => {
    await nspawn?.exited;
    nspawn = undefined;
    for (const group of controlGroups(name)) await removeGroup(group);
  };

  const cutPower = async (): Promise<void> => {
    const leader = leaderOf(nspawn?.pid);
    // All processes of the machine end with its first one.
    if (leader !== undefined) process.kill(leader, "SIGKILL");
    nspawn?.kill("SIGKILL");
    await end();
  };

  return {
    root,
    run,
    must,
    until,
    async boot() {
      const begin = performance.now();
      const child = Bun.spawn(inOwnGroup(name, onMountPoint(root, nspawnCommand(root, name, namespace))), {
        stdin: "ignore",
        stdout: "ignore",
        stderr: "pipe",
      });
      nspawn = child;
      const said = new Response(child.stderr).text();
      for (;;) {
        const { status } = await run("systemctl is-system-running | grep -qE 'running|degraded'");
        const passed = performance.now() - begin;
        if (status === 0) return passed;
        if (child.exitCode !== null) throw new Error(`The machine has ended while it booted: ${await said}`);
        if (passed > readyMs) throw new Error(`The machine is not up after ${readyMs} ms`);
        await Bun.sleep(100);
      }
    },
    async powerOff() {
      await run("systemctl poweroff");
      const timer = setTimeout(() => nspawn?.kill("SIGKILL"), 60_000);
      await end();
      clearTimeout(timer);
    },
    cutPower,
    async [Symbol.asyncDispose]() {
      await cutPower();
      tree[Symbol.dispose]();
    },
  };
}

/** The cgroup hierarchies of systemd: one, or two on a hybrid system. */
function controlGroups(name: string): string[] {
  const top = "/sys/fs/cgroup";
  const old = [`${top}/systemd`, `${top}/unified`].filter((path) => existsSync(path));
  return (old.length > 0 ? old : [top]).map((path) => join(path, name));
}

/** Two machines in one control group would each end the other's processes. */
function inOwnGroup(name: string, argv: string[]): string[] {
  const enter = controlGroups(name).map((group) => `mkdir ${group} && echo $$ >${group}/cgroup.procs`);
  return ["/bin/sh", "-c", `${enter.join(" && ")} && exec "$@"`, "sh", ...argv];
}

/** nspawn requires / to be a mount point. In a chroot it is not, so bind mount it. */
function onMountPoint(root: string, argv: string[]): string[] {
  if (Bun.spawnSync(["unshare", "--mount", "true"], { stderr: "ignore" }).exitCode === 0) return argv;
  const enter = 'mkdir -p "$0" && mount --rbind / "$0" && exec chroot "$0" "$@"';
  return [
    "unshare",
    "--mount",
    "--propagation=unchanged",
    "/bin/sh",
    "-c",
    enter,
    `${root}.outside`,
    ...argv,
  ];
}

/** Waits for the last processes, also after a power cut. */
async function removeGroup(group: string): Promise<void> {
  for (let tries = 0; existsSync(group) && tries < 50; tries++) {
    const remove = Bun.spawnSync(["find", group, "-depth", "-type", "d", "-delete"], { stderr: "ignore" });
    if (remove.exitCode !== 0) await Bun.sleep(20);
  }
}

/** Without systemd outside, nspawn must not register the machine or create a scope. */
function nspawnCommand(root: string, name: string, namespace: string): string[] {
  return [
    "systemd-nspawn",
    `--directory=${root}`,
    "--boot",
    "--quiet",
    "--register=no",
    "--keep-unit",
    `--network-namespace-path=/run/netns/${namespace}`,
    "--bind=/dev/net/tun",
    "--capability=CAP_NET_ADMIN,CAP_NET_RAW",
    "--console=pipe",
    `--machine=${name}`,
  ];
}

/** The process id outside of the machine's first process. */
function leaderOf(pid: number | undefined): number | undefined {
  if (pid === undefined) return undefined;
  const [child] = readProcess(`${pid}/task/${pid}/children`).split(" ");
  return child === undefined || child === "" ? undefined : Number(child);
}

/** Before the process runs systemd, its files are still those of this machine. */
function isUp(leader: number | undefined): leader is number {
  return leader !== undefined && readProcess(`${leader}/comm`) === "systemd\n";
}

/** Empty for an ended process. */
function readProcess(path: string): string {
  try {
    return readFileSync(join("/proc", path), "utf8");
  } catch {
    return "";
  }
}
