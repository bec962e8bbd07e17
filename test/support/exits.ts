// A network with an internet: a control plane, two exits that are lighthouses too, a user's machine with a printer in its
// private network, and a server on the internet. A capture on the machine's uplink says what left beside the tunnel.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runAgent } from "./agent.ts";
import { placesBelow, startDaemon, statusOf, type Daemon, type Places } from "./daemon.ts";
import { startFarPlane, type FarPlane } from "./far-plane.ts";
import { machineState } from "../../src/platform/machine-state.ts";
import { makeLan, type Host } from "./namespaces.ts";
import { temporaryDirectory } from "./temporary.ts";
import { until } from "./until.ts";

export const internet = "198.51.100.9";
export const internet6 = "2001:db8:9::9";
/** A name server in the private network of the machine, and the one of the exits. */
export const printer = "192.168.50.1";
const localServer = printer;

export type Member = { host: Host; places: Places; daemon: Daemon; ip: string; restart(): Promise<void> };
export type ExitScene = AsyncDisposable & {
  plane: FarPlane;
  user: Member;
  exits: readonly [Member, Member];
  net: Host;
  /** Runs `agent exit …` on the user's machine. */
  exit(...words: string[]): Promise<{ status: number; stdout: string; stderr: string }>;
  /** `ip rule`, all routes and nftables of the user's machine. */
  machine(): string;
  /** Captures on the uplink until stopped; returns the packets that left the machine, a line each. */
  capture(): { stop(): Promise<string[]> };
  pings(address: string, count?: number): number;
};

/** `orgFlags`: of `agent admin org create`. */
export async function makeExitScene(nebula: string, orgFlags: readonly string[] = []): Promise<ExitScene> {
  const stack = new AsyncDisposableStack();
  try {
    const { path: directory } = stack.use(temporaryDirectory());
    const lan = stack.use(makeLan(["plane", "net", "one", "two", "user"]));
    const net = lan.host("net");
    net.run(["ip", "addr", "add", `${internet}/32`, "dev", "lo"]);
    net.run(["ip", "addr", "add", `${printer}/24`, "dev", "eth0"]);
    for (const name of ["one", "two", "user", "plane"])
      lan.host(name).run(["ip", "route", "add", "default", "via", net.address]);
    lan.host("user").run(["ip", "addr", "add", "192.168.50.5/24", "dev", "eth0"]);
    net.run(["ip", "addr", "add", `${internet6}/128`, "dev", "lo"]);
    net.run(["ip", "addr", "add", "2001:db8::2/64", "dev", "eth0", "nodad"]);
    lan.host("user").run(["ip", "addr", "add", "2001:db8::5/64", "dev", "eth0", "nodad"]);
    lan.host("user").run(["ip", "-6", "route", "add", "default", "via", "2001:db8::2"]);
    const plane = stack.use(
      await startFarPlane(lan.host("plane"), join(directory, "plane"), "acme", orgFlags),
    );
    const join1 = async (name: string, lighthouse: boolean): Promise<Member> => {
      const host = lan.host(name);
      const places = placesBelow(join(directory, name), nebula);
      const token = await plane.makeToken(lighthouse ? ["--lighthouse"] : []);
      const flags = lighthouse ? ["--is-lighthouse", "--public-ip", host.address] : [];
      await registerInside(host, plane, places, token, name, flags);
      const member: Member = {
        host,
        places,
        daemon: await startDaemon(host, places),
        ip: "",
        async restart() {
          member.daemon = await startDaemon(host, places);
        },
      };
      stack.defer(async () => {
        member.daemon.signal("SIGTERM");
        await Promise.race([member.daemon.exited, Bun.sleep(5000)]);
      });
      await until(async () => (await statusOf(places, plane.slug)).state === "running", {
        what: `${name} to run`,
        ms: 20_000,
      });
      member.ip = (await statusOf(places, plane.slug)).ip_address;
      return member;
    };
    const exits = [await join1("one", true), await join1("two", true)] as const;
    const user = await join1("user", false);
    for (const [at, { host }] of exits.entries()) {
      host.run(["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
      host.run(["ip", "addr", "add", `2001:db8::1${at}/64`, "dev", "eth0", "nodad"]);
      host.run(["ip", "-6", "route", "add", "default", "via", "2001:db8::2"]);
    }
    const { host, places } = user;
    return {
      plane,
      user,
      exits,
      net,
      exit: (...words) => runAgent(["exit", ...words, ...places.flags], { inside: host.inside }),
      machine: () =>
        [
          ["ip", "rule"],
          ["ip", "-6", "rule"],
          ["ip", "route", "show", "table", "all"],
          ["ip", "-6", "route", "show", "table", "all"],
          ["nft", "list", "ruleset"],
        ]
          .map((argv) => host.run(argv))
          .join("\n"),
      capture() {
        const path = join(directory, `capture-${performance.now()}`);
        const child = host.spawn([
          "sh",
          "-c",
          `exec tcpdump -lnni eth0 -Q out not arp > ${path} 2>${path}.err`,
        ]);
        const error = () => (existsSync(`${path}.err`) ? readFileSync(`${path}.err`, "utf8") : "");
        for (let waited = 0; !error().includes("listening on") && waited < 5000; waited += 20)
          Bun.sleepSync(20);
        return {
          async stop() {
            await Bun.sleep(300);
            child.kill("SIGINT");
            await child.exited;
            return readFileSync(path, "utf8").split("\n").filter(Boolean);
          },
        };
      },
      pings(address, count = 3) {
        const { stdout } = Bun.spawnSync(
          host.inside(["ping", "-n", "-c", `${count}`, "-i", "0.2", "-W", "1", address]),
          { stderr: "ignore" },
        );
        return Number(/(\d+) received/.exec(stdout.toString())?.[1] ?? 0);
      },
      [Symbol.asyncDispose]: () => stack.disposeAsync(),
    };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function registerInside(
  host: Host,
  plane: FarPlane,
  places: Places,
  token: string,
  name: string,
  flags: readonly string[],
): Promise<void> {
  const words = ["register", "--api-base", plane.url, "--allow-plain-http", "--org-slug", plane.slug];
  const how = ["--node-name", name, "--registration-token-file", "-", "--mode", "desktop", "--no-start"];
  const args = [...words, ...how, ...flags, ...places.flags];
  const { status, stderr } = await runAgent(args, { input: token, inside: host.inside });
  if (status !== 0) throw new Error(`${name} could not be registered: ${stderr}`);
}

/** Makes both exits exits, for all nodes: root's word on each, and the administrator's. */
export async function approveExits({ plane, exits, user }: ExitScene): Promise<void> {
  const list = (await plane.api("GET", `/api/org/${plane.slug}/nodes/`)) as {
    results?: { id: number; name: string }[];
  };
  const nodes = list.results ?? (list as unknown as { id: number; name: string }[]);
  for (const { host, places } of exits) {
    const args = ["up", "--advertise-exit", "--wait", "1s", ...places.flags];
    await runAgent(args, { inside: host.inside });
    const { id } = nodes.find(({ name }) => name === host.name) ?? { id: 0 };
    await plane.api("PATCH", `/api/org/${plane.slug}/nodes/${id}/`, { exit_groups: ["any"] });
  }
  const path = join(user.places.configRoot, plane.slug, "node-config.json");
  await until(() => /"one"[^]*"two"/.test(readFileSync(path, "utf8")), { what: "both exits", ms: 20_000 });
}

/** The machine's name server, which hosts of tests share; undefined if it is one on loopback. */
const nameServer = machineState().nameServers.find((each) => /^(?!127\.)[\d.]+$/.test(each));

/**
 * The address from which a question for a name reaches the name server, while `during` captures; undefined where this
 * machine has none that others reach.
 */
export async function askerOf({ net, user: { host } }: ExitScene): Promise<string | undefined> {
  if (nameServer === undefined) return undefined;
  net.run(["ip", "addr", "replace", `${nameServer}/32`, "dev", "lo"]);
  const answer = `const s = await Bun.udpSocket({ hostname: "${nameServer}", port: 53, socket: {
    data(socket, _, port, address) { socket.send(address, port, address); } } }); process.stdout.write("up");`;
  const server = Bun.spawn(net.inside([process.execPath, "-e", answer]), { stdout: "pipe" });
  await server.stdout.getReader().read();
  const ask = `const s = await Bun.udpSocket({ socket: { data(_, data) { console.log(data.toString()); process.exit(0); } } });
    setInterval(() => s.send("x", 53, "${nameServer}"), 200); setTimeout(() => process.exit(0), 5000);`;
  const asked = host.run([process.execPath, "-e", ask]).trim();
  server.kill();
  return asked;
}

/** Sends to the internet by both families, and asks name servers, as fast as a user with much to do. */
export function makeTraffic({ user: { host } }: ExitScene): Disposable {
  const sends = `while :; do
    for at in ${internet}/5000 ${internet}/53 ${localServer}/53 ${localServer}/853; do echo x > /dev/udp/$at; done
    sleep 0.05; done 2>/dev/null`;
  const children = [
    host.spawn(["bash", "-c", sends]),
    host.spawn(["bash", "-c", `while :; do ping -nqi 0.1 -c 50 ${internet}; sleep 0.2; done`]),
    host.spawn(["bash", "-c", `while :; do ping -nqi 0.1 -c 50 ${internet6}; sleep 0.2; done`]),
  ];
  return { [Symbol.dispose]: () => children.forEach((each) => each.kill("SIGKILL")) };
}

/** The captured packets that strictness forbids: all but those of the tunnel and to the control plane, and of the link. */
export function leaked(lines: readonly string[], { plane, exits }: ExitScene): string[] {
  const control = new URL(plane.url);
  const allowed = [
    ...exits.map(({ host }) => `> ${host.address}.4242: UDP`),
    `> ${control.hostname}.${control.port}: `,
    "ICMP6, neighbor ",
    "ICMP6, router solicitation",
    "ICMP6, multicast listener",
    // Answers of the kernel to what arrives for a tunnel that has just ended.
    ...exits.map(({ host }) => `> ${host.address}: ICMP`),
  ];
  return lines.filter((line) => !allowed.some((each) => line.includes(each)));
}
