// Networks behind nodes: a site is one Ethernet with a host, which some members of a test network are connected to. Run as a
// program: `serve PORT` answers each line of TCP; `flow ADDRESS PORT` sends a line every 100 ms, and prints each answer.

import { connect, createServer } from "node:net";
import { join } from "node:path";
import { runSync } from "./debian.ts";
import type { Host } from "./namespaces.ts";

export const sitePort = 7777;

const [, program = "", how = "", ...words] = process.argv;
if (import.meta.main && program === import.meta.path) {
  if (how === "serve") {
    createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.on("data", (data) => void socket.write(data));
    }).listen(Number(words[0]), "0.0.0.0", () => process.stdout.write("open\n"));
  } else {
    const socket = connect(Number(words[1]), words[0] ?? "");
    let sent = 0;
    socket.on("connect", () => {
      socket.setNoDelay(true);
      setInterval(() => socket.write(`${sent++}\n`), 100);
    });
    socket.on(
      "data",
      () => void process.stdout.write(`answer ${performance.timeOrigin + performance.now()}\n`),
    );
    socket.on("error", (error) => void process.stdout.write(`error ${error.message}\n`));
    socket.on("close", () => process.exit(0));
  }
}

export type Site = Disposable & {
  namespace: string;
  /** Of its host. */
  address: string;
  /** Packets of TCP with a reset that its host has seen or sent. */
  resets(): number;
  /** Cuts a router's cable. */
  cable(router: Host, state: "up" | "down"): void;
  run(argv: readonly string[]): string;
};

const enter = (namespace: string) => ["nsenter", `--net=/run/netns/${namespace}`, "--"];

/** The host has the address 10 of `prefix`, such as "192.168.7"; the routers have 1, 2, … on their interface `device`. */
export async function makeSite(
  name: string,
  prefix: string,
  routers: readonly Host[],
  { returnBy, device = "lan0" }: { returnBy?: string; device?: string } = {},
): Promise<Site> {
  const [first] = routers;
  if (first === undefined) throw new Error("A site needs a router");
  // The sweep of namespaces.ts knows names that begin like this.
  const namespace = `${first.namespace}-${name}`;
  const run = (argv: readonly string[]) => runSync([...enter(namespace), ...argv]);
  const ip = (...argv: string[]) => run(["ip", ...argv]);
  runSync(["ip", "netns", "add", namespace]);
  ip("link", "set", "lo", "up");
  ip("link", "add", "site", "type", "bridge");
  ip("addr", "add", `${prefix}.10/24`, "dev", "site");
  ip("link", "set", "site", "addrgenmode", "none", "up");
  for (const [at, router] of routers.entries()) {
    ip("link", "add", `port${at}`, "type", "veth", "peer", "name", device, "netns", router.namespace);
    ip("link", "set", `port${at}`, "master", "site", "up");
    router.run(["ip", "addr", "add", `${prefix}.${at + 1}/24`, "dev", device]);
    router.run(["ip", "link", "set", device, "addrgenmode", "none", "up"]);
  }
  if (returnBy !== undefined) ip("route", "add", "default", "via", returnBy);
  const child = Bun.spawn(
    [...enter(namespace), process.execPath, import.meta.path, "serve", String(sitePort)],
    {
      stdout: "pipe",
      stderr: "inherit",
    },
  );
  await child.stdout.getReader().read();
  run(["nft", "add", "table", "inet", "seen"]);
  run(["nft", "add", "counter", "inet", "seen", "resets"]);
  for (const hook of ["input", "output"]) {
    run(["nft", "add", "chain", "inet", "seen", hook, `{ type filter hook ${hook} priority 0; }`]);
    run([
      "nft",
      "add",
      "rule",
      "inet",
      "seen",
      hook,
      "tcp",
      "flags",
      "&",
      "rst",
      "==",
      "rst",
      "counter",
      "name",
      "resets",
    ]);
  }
  return {
    resets: () =>
      Number(/packets (\d+)/.exec(run(["nft", "list", "counter", "inet", "seen", "resets"]))?.[1]),
    namespace,
    address: `${prefix}.10`,
    run,
    cable: (router, state) => void ip("link", "set", `port${routers.indexOf(router)}`, state),
    [Symbol.dispose]() {
      child.kill();
      Bun.spawnSync(["ip", "netns", "del", namespace], { stderr: "ignore" });
    },
  };
}

export type Flow = {
  /** Times of answers, ms on the clock of performance.now(). */
  answers: number[];
  /** Why it ended; undefined while it is open. */
  ended(): string | undefined;
  /** The longest time without an answer since then, ms. */
  gapSince(at: number): number;
  stop(): void;
};

export function startFlow(host: Host, address: string): Flow {
  const path = join(import.meta.dir, "sites.ts");
  const argv = host.inside([process.execPath, path, "flow", address, String(sitePort)]);
  const child = Bun.spawn(argv, { stdout: "pipe", stderr: "inherit" });
  const answers: number[] = [];
  let end: string | undefined;
  void (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of child.stdout) {
      for (const line of decoder.decode(chunk).split("\n")) {
        const [word, ...rest] = line.split(" ");
        if (word === "answer") answers.push(Number(rest[0]) - performance.timeOrigin);
        if (word === "error") end = rest.join(" ");
      }
    }
    end ??= "closed";
  })();
  return {
    answers,
    ended: () => end,
    gapSince(at) {
      const times = [at, ...answers.filter((each) => each >= at), performance.now()];
      return Math.max(...times.slice(1).map((each, index) => each - (times[index] ?? each)));
    },
    stop: () => child.kill(),
  };
}
