// A Debian booted by its own systemd inside systemd-nspawn, joined to a network namespace of a test. Each
// machine is an overlay over one tree, and keeps what is its own from one boot to the next.

import { describe } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { inCi, installMissing } from "./debian.ts";
import { cannotMakeTrees, debianTree, overlayTree } from "./debian-tree.ts";

const packages = "systemd systemd-sysv dbus kmod iproute2 iputils-ping nebula ca-certificates xz-utils".split(
  " ",
);
const readyMs = 120_000;
let made = 0;

/** Tests that boot machines. Where none can be booted they count as skipped; in CI that is an error. */
export function describeMachine(name: string, tests: () => void): void {
  const reason = cannotBoot();
  if (reason !== undefined && inCi) throw new Error(`${name}: no machine can be booted: ${reason}`);
  describe.skipIf(reason !== undefined)(name, tests);
}

/** A sentence that says why no machine can be booted here, or undefined. */
function cannotBoot(): string | undefined {
  const reason = cannotMakeTrees() ?? installMissing(["/usr/bin/systemd-nspawn"]);
  if (reason !== undefined) return reason;
  try {
    debianTree("booted", packages);
  } catch (error) {
    return String(error);
  }
  return existsSync("/dev/net/tun") ? undefined : "there is no /dev/net/tun";
}

export type MachineResult = { status: number; stdout: string; stderr: string };

export type Machine = AsyncDisposable & {
  /** Its file system, seen from outside. */
  root: string;
  /** Runs a shell script inside, to its end. */
  run(script: string, timeoutMs?: number): Promise<MachineResult>;
  /** Like run; throws unless it ends with 0. Its standard output, trimmed. */
  must(script: string, timeoutMs?: number): Promise<string>;
  /** Runs the script every 100 ms until it ends with 0; throws after `timeoutMs`. How long it took, ms. */
  until(script: string, timeoutMs: number): Promise<number>;
  /** Resolves when systemd has started all it wants to. ms since the power was on. */
  boot(): Promise<number>;
  /** An orderly end. */
  powerOff(): Promise<void>;
  /** As if the cable was pulled: nothing inside gets to do anything. */
  cutPower(): Promise<void>;
};

/**
 * Makes a machine, not yet booted. `namespace`: of `ip netns`, with its addresses set up. `layer`: a directory whose
 * files it has too.
 */
export function makeMachine(namespace: string, layer?: string): Machine {
  const tree = overlayTree(debianTree("booted", packages), layer === undefined ? [] : [layer]);
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
      await Bun.sleep(100);
    }
  };

  const end = async (): Promise<void> => {
    await nspawn?.exited;
    nspawn = undefined;
    for (const group of controlGroups(name)) await removeGroup(group);
  };

  const cutPower = async (): Promise<void> => {
    const leader = leaderOf(nspawn?.pid);
    // The first process of the machine takes all the others with it.
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

/** The hierarchies that systemd keeps its units in: one, or two where the old kind is still there beside the new. */
function controlGroups(name: string): string[] {
  const top = "/sys/fs/cgroup";
  const old = [`${top}/systemd`, `${top}/unified`].filter((path) => existsSync(path));
  return (old.length > 0 ? old : [top]).map((path) => join(path, name));
}

/** Two machines in one control group would take each other's processes for their own, and end them. */
function inOwnGroup(name: string, argv: string[]): string[] {
  const enter = controlGroups(name).map((group) => `mkdir ${group} && echo $$ >${group}/cgroup.procs`);
  return ["/bin/sh", "-c", `${enter.join(" && ")} && exec "$@"`, "sh", ...argv];
}

/** nspawn wants / to be a mount point, which it is not in a chroot: there, it gets one of its own that shows the same. */
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

/** Also after a power cut, when the last processes may still be ending. */
async function removeGroup(group: string): Promise<void> {
  for (let tries = 0; existsSync(group) && tries < 50; tries++) {
    const remove = Bun.spawnSync(["find", group, "-depth", "-type", "d", "-delete"], { stderr: "ignore" });
    if (remove.exitCode !== 0) await Bun.sleep(20);
  }
}

/** No systemd runs outside, so nothing is registered and no scope is made. */
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

/** The machine's own first process, seen from outside. */
function leaderOf(pid: number | undefined): number | undefined {
  if (pid === undefined) return undefined;
  const [child] = readProcess(`${pid}/task/${pid}/children`).split(" ");
  return child === undefined || child === "" ? undefined : Number(child);
}

/** Before it is systemd, its files may still be ours. */
function isUp(leader: number | undefined): leader is number {
  return leader !== undefined && readProcess(`${leader}/comm`) === "systemd\n";
}

/** Nothing of a process that has ended. */
function readProcess(path: string): string {
  try {
    return readFileSync(join("/proc", path), "utf8");
  } catch {
    return "";
  }
}
