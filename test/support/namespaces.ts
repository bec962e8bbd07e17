// A small network of hosts for tests: each host is a network namespace, and a bridge in another namespace joins them, so
// that the machine's network does not change. Names are unique. `using lan = makeLan(…)` removes everything at the end,
// also after a failure. A later run removes what a killed run left.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runSync } from "./debian.ts";

const prefix = "oat";
let made = 0;

export type Host = {
  name: string;
  /** Underlay address, 192.0.2.n, or in another prefix. */
  address: string;
  /** The name for `ip netns`. */
  namespace: string;
  /** Wraps argv, to run the command inside. */
  inside(argv: readonly string[]): string[];
  /** Runs a program and returns its standard output. Throws if it fails. */
  run(argv: readonly string[]): string;
  /** Starts a program, which the caller ends. `remove` of the network kills remaining programs. */
  spawn(
    argv: readonly string[],
    options?: { stdout?: number; cwd?: string; env?: Record<string, string> },
  ): Bun.Subprocess;
  /** Disconnects or connects the host. */
  link(state: "up" | "down"): void;
};

export type Lan = Disposable & { hosts: Host[]; host(name: string): Host; remove(): void };

/** Creates one host for each name, all on one Ethernet. Needs root. `prefix`: of their addresses. */
export function makeLan(names: readonly string[], prefixOfAll = "192.0.2"): Lan {
  sweep();
  const id = `${prefix}${process.pid}-${made++}`;
  const hub = `${id}-hub`;
  const hosts = names.map((name, at) => makeHost(`${id}-${at}`, name, `${prefixOfAll}.${at + 1}`));
  const remove = () => {
    for (const namespace of [...hosts.map((host) => host.namespace), hub]) removeNamespace(namespace);
  };
  try {
    runSync(["ip", "netns", "add", hub]);
    runSync([...within(hub), "ip", "link", "add", "bridge", "type", "bridge"]);
    runSync([...within(hub), "ip", "link", "set", "bridge", "up"]);
    for (const [at, { namespace, address }] of hosts.entries()) {
      const port = `port${at + 1}`;
      runSync(["ip", "netns", "add", namespace]);
      runSync([
        ...within(hub),
        "ip",
        "link",
        "add",
        port,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        namespace,
      ]);
      runSync([...within(hub), "ip", "link", "set", port, "master", "bridge", "up"]);
      runSync([...within(namespace), "ip", "addr", "add", `${address}/24`, "dev", "eth0"]);
      runSync([...within(namespace), "ip", "link", "set", "lo", "up"]);
      // Without an address of IPv6, which takes seconds to become valid: a browser drops its requests at that moment.
      runSync([...within(namespace), "ip", "link", "set", "eth0", "addrgenmode", "none", "up"]);
    }
  } catch (error) {
    remove();
    throw error;
  }
  return { hosts, host: (name) => find(hosts, name), remove, [Symbol.dispose]: remove };
}

/** Enters without changing mounts, unlike `ip -n`: a chroot does not permit that. */
function within(namespace: string): string[] {
  return ["nsenter", `--net=/run/netns/${namespace}`, "--"];
}

function find(hosts: Host[], name: string): Host {
  const host = hosts.find((each) => each.name === name);
  if (host === undefined) throw new Error(`No host ${name} in this network`);
  return host;
}

function makeHost(namespace: string, name: string, address: string): Host {
  const inside = (argv: readonly string[]) => [...within(namespace), ...argv];
  return {
    name,
    address,
    namespace,
    inside,
    run: (argv) => runSync(inside(argv)),
    spawn: (argv, options = {}) =>
      Bun.spawn(inside(argv), {
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
        env: options.env ?? { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
        stdin: "ignore",
        stdout: options.stdout ?? "ignore",
        stderr: options.stdout ?? "ignore",
      }),
    link: (state) => void runSync([...within(namespace), "ip", "link", "set", "eth0", state]),
  };
}

function removeNamespace(namespace: string): void {
  const list = Bun.spawnSync(["ip", "netns", "pids", namespace], { stderr: "ignore" });
  for (const pid of list.stdout.toString().split("\n").filter(Boolean)) {
    Bun.spawnSync(["kill", "-KILL", pid], { stderr: "ignore" });
  }
  Bun.spawnSync(["ip", "netns", "del", namespace], { stderr: "ignore" });
}

/** Removes namespaces of killed test runs, whose process no longer exists. */
function sweep(): void {
  const listed = Bun.spawnSync(["ip", "netns", "list"]).stdout.toString();
  for (const [namespace, pid = ""] of listed.matchAll(new RegExp(`^${prefix}(\\d+)-\\S+`, "gm"))) {
    if (!isAlive(pid)) removeNamespace(namespace);
  }
}

function isAlive(pid: string): boolean {
  return (
    readdirSync("/proc").includes(pid) && !readFileSync(join("/proc", pid, "stat"), "utf8").includes(") Z ")
  );
}

export type Pinger = {
  /** Time of each reply in ms on the clock of performance.now(), with its sequence number. */
  replies: { seq: number; at: number }[];
  /** Resolves with the first reply after now; rejects after `ms`. */
  reply(ms: number): Promise<{ seq: number; at: number }>;
  stop(): Promise<void>;
};

/** Pings an address from a host every `everyMs` until stopped, and records the time of each reply. */
export function startPing(host: Host, address: string, everyMs = 100): Pinger {
  const argv = host.inside(["ping", "-n", "-D", "-i", String(everyMs / 1000), address]);
  const env = { PATH: process.env["PATH"] ?? "", LC_ALL: "C" };
  const start = () => Bun.spawn(argv, { env, stdin: "ignore", stdout: "pipe", stderr: "ignore" });
  let child = start();
  const end = new AbortController();
  const replies: Pinger["replies"] = [];
  const waiting = new Set<(reply: { seq: number; at: number }) => void>();
  const reading = (async () => {
    // Without a route, ping ends at once: start it again.
    while (!end.signal.aborted) {
      await readLines(child.stdout, (line) => {
        const [, time, seq] = /^\[([\d.]+)\] .*bytes from .* icmp_seq=(\d+)/.exec(line) ?? [];
        if (time === undefined) return;
        // The time of ping: this process may read late, while other tests of it prepare their hosts.
        const reply = { seq: Number(seq), at: Number(time) * 1000 - performance.timeOrigin };
        replies.push(reply);
        for (const resolve of waiting) resolve(reply);
        waiting.clear();
      });
      await Bun.sleep(5);
      if (!end.signal.aborted) child = start();
    }
  })();
  return {
    replies,
    reply: (ms) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          waiting.delete(onReply);
          reject(new Error(`No reply from ${address} to ${host.name} within ${ms} ms`));
        }, ms);
        const onReply = (reply: { seq: number; at: number }) => {
          clearTimeout(timer);
          resolve(reply);
        };
        waiting.add(onReply);
      }),
    stop: async () => {
      end.abort();
      child.kill("SIGINT");
      await reading;
    },
  };
}

/** Sequence numbers without a reply, except the last ones, which may be under way. */
export function lost({ replies }: Pinger): number[] {
  const seen = new Set(replies.map(({ seq }) => seq));
  const [first, last] = [Math.min(...seen), Math.max(...seen)];
  return Array.from({ length: last - first }, (_, at) => first + at).filter((seq) => !seen.has(seq));
}

/** When lost pings were sent, as far as the replies before them show. */
export function lostAt(ping: Pinger, everyMs = 100): number[] {
  return lost(ping).map((seq) => {
    const before = ping.replies.findLast((reply) => reply.seq < seq);
    return before === undefined ? 0 : before.at + (seq - before.seq) * everyMs;
  });
}

async function readLines(stream: ReadableStream<Uint8Array>, take: (line: string) => void): Promise<void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(take);
  }
}
