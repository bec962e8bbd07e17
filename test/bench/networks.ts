// `bun test/bench/networks.ts [CELL…]`: two nodes behind each kind of network, ours (engine 1.12) and those of Tailscale (with its
// relay and a STUN server of their own), side by side: seconds until the first ping, from the start of both, or from a change of the
// first one's address, and whether the path is direct or relayed after 20 seconds. Bars: each cell connects, none of ours more than
// 2 s later. Needs root.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { blockUdp, nft } from "../support/block-udp.ts";
import { command, placesBelow, registerDesktop, startDaemon, statusOf } from "../support/daemon.ts";
import { bridgePort } from "../support/bridge.ts";
import { engineNamed } from "../support/engines.ts";
import { goProgram } from "../support/go-programs.ts";
import { makeLan, startPing, type Host, type Lan } from "../support/namespaces.ts";
import { putBehindNat, type Nat } from "../support/nat.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { runSync } from "../support/debian.ts";
import { until } from "../support/until.ts";
import { hasTailscale } from "./tailscale.ts";
import { print } from "./measure.ts";

/** What is done to the two hosts before anything starts there. The third one is the lighthouse, or their control server and relay. */
type Prepare = (a: Host, b: Host, stack: DisposableStack, hub: Host) => void;
type Cell = {
  prepare: Prepare;
  /** Where the third host is reached. */
  hubAt?: string;
  /** What is done to the first host when all works. */
  later?: (a: Host) => void;
};
const behind =
  (kinds: readonly [Nat | undefined, Nat | undefined]): Prepare =>
  (a, b, stack) => {
    for (const [at, host] of [a, b].entries()) {
      const kind = kinds[at];
      if (kind !== undefined) stack.use(putBehindNat(host, kind));
    }
  };
/** Of what arrives at the host, and of what it sends, one packet in five is lost. */
const loseOneInFive = (host: Host): void =>
  nft(
    host,
    `table inet loss {
       chain in { type filter hook input priority 0; iifname "eth0" numgen random mod 100 < 20 drop; }
       chain out { type filter hook output priority 0; oifname "eth0" numgen random mod 100 < 20 drop; }
     }`,
  );

/** A router more between the host and the one that it is behind. */
function addRouter(host: Host): Disposable {
  const router = `${host.namespace}-nat2`;
  const within = (...argv: string[]) => runSync(["nsenter", `--net=/run/netns/${router}`, "--", ...argv]);
  const number = host.address.split(".").at(-1) ?? "";
  const [outer, inner] = [`10.200.${number}`, `10.201.${number}`];
  runSync(["ip", "netns", "add", router]);
  host.run(["ip", "link", "set", "eth0", "netns", router]);
  within(..."ip link set lo up".split(" "));
  within("ip", "addr", "add", `${outer}.2/24`, "dev", "eth0");
  within(..."ip link set eth0 up".split(" "));
  within("ip", "route", "add", "default", "via", `${outer}.1`);
  within(..."ip link add inside type veth peer name eth0 netns".split(" "), host.namespace);
  within("ip", "addr", "add", `${inner}.1/24`, "dev", "inside");
  within(..."ip link set inside up".split(" "));
  host.run(["ip", "addr", "add", `${inner}.2/24`, "dev", "eth0"]);
  host.run(["ip", "link", "set", "eth0", "up"]);
  host.run(["ip", "route", "add", "default", "via", `${inner}.1`]);
  within("sysctl", "-qw", "net.ipv4.ip_forward=1");
  within(
    "nft",
    'table ip nat { chain out { type nat hook postrouting priority 100; oifname "eth0" masquerade; }; }',
  );
  return { [Symbol.dispose]: () => void Bun.spawnSync(["ip", "netns", "del", router], { stderr: "ignore" }) };
}

/** The second host moves behind the router of the first one. */
function shareRouter(first: Host, second: Host): void {
  const router = `${first.namespace}-nat`;
  const within = (...argv: string[]) => runSync(["nsenter", `--net=/run/netns/${router}`, "--", ...argv]);
  second.run(["ip", "link", "del", "eth0"]);
  within(..."ip link add beside type veth peer name eth0 netns".split(" "), second.namespace);
  within("ip", "addr", "add", "10.202.0.1/24", "dev", "beside");
  within(..."ip link set beside up".split(" "));
  second.run(["ip", "addr", "add", "10.202.0.2/24", "dev", "eth0"]);
  second.run(["ip", "link", "set", "eth0", "up"]);
  second.run(["ip", "route", "add", "default", "via", "10.202.0.1"]);
  within("nft", 'add rule inet filter through iifname "beside" accept');
}

const [ipv6Hub, otherAddress] = ["2001:db8:0:1::1", "192.0.2.102"];

/** The control plane of ours is on loopback of each host. */
const ipv6Only: Prepare = (a, b, _, hub) => {
  for (const [at, host] of [hub, a, b].entries()) {
    host.run(["ip", "addr", "add", `2001:db8:0:1::${at + 1}/64`, "dev", "eth0", "nodad"]);
    host.run(["ip", "-4", "addr", "flush", "dev", "eth0"]);
  }
};

const moveAddress = (host: Host): void => {
  host.run(["ip", "addr", "del", `${host.address}/24`, "dev", "eth0"]);
  host.run(["ip", "addr", "add", `${otherAddress}/24`, "dev", "eth0"]);
};

const prepared: Record<string, Prepare> = {
  open: behind([undefined, undefined]),
  "port-restricted": behind(["masquerade", "masquerade"]),
  symmetric: behind(["random", undefined]),
  "both symmetric": behind(["random", "random"]),
  "UDP blocked": (a) => blockUdp(a),
  "both blocked": (a, b) => [a, b].forEach(blockUdp),
  "20 % loss": loseOneInFive,
  "same NAT": (a, b, stack) => {
    stack.use(putBehindNat(a, "masquerade"));
    shareRouter(a, b);
  },
  "double NAT": (a, b, stack) => {
    for (const host of [a, b]) {
      stack.use(putBehindNat(host, "masquerade"));
      stack.use(addRouter(host));
    }
  },
};
const cells: Record<string, Cell> = {
  ...Object.fromEntries(Object.entries(prepared).map(([name, prepare]) => [name, { prepare }])),
  "IPv6 only": { prepare: ipv6Only, hubAt: ipv6Hub },
  roaming: { prepare: () => undefined, later: moveAddress },
};
type Result = { s: number | undefined; path: string };

const giveUpMs = 60_000;
const settleMs = 20_000;

/** Between the first ping and the change of the cell. */
const steadyMs = 5000;

/** Seconds from the beginning, which may be in the past, or from the change of the cell, until the first answer. Then the path settles. */
async function untilPing(
  host: Host,
  address: string,
  began: number,
  { later }: Cell,
): Promise<number | undefined> {
  const first = await firstPing(host, address, began);
  let ms = first;
  if (later !== undefined && first !== undefined) {
    const ping = startPing(host, address);
    await Bun.sleep(steadyMs);
    await ping.stop();
    later(host);
    ms = await firstPing(host, address, performance.now());
  }
  const ping = startPing(host, address);
  await Bun.sleep(settleMs);
  await ping.stop();
  return ms === undefined ? undefined : ms / 1000;
}

/** Ms until the first answer from the beginning on, which may be in the past. */
async function firstPing(host: Host, address: string, began: number): Promise<number | undefined> {
  const ping = startPing(host, address, 100);
  try {
    return (await ping.reply(giveUpMs)).at - began;
  } catch {
    return undefined;
  } finally {
    await ping.stop();
  }
}

async function ours(directory: string, lan: Lan, cell: Cell): Promise<Result> {
  await using stack = new AsyncDisposableStack();
  const plane = stack.use(await startControlPlane(join(directory, "server")));
  const acme = await makeOrganization(plane);
  const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
  const { nebula } = engineNamed("1.12");
  const start = async (host: Host, flags: readonly string[] = []) => {
    const places = placesBelow(join(directory, host.name), nebula);
    await registerDesktop(acme, places, token, host.name, flags);
    stack.use(await bridgePort(host, join(directory, host.name), Number(new URL(plane.url).port)));
    return { host, places };
  };
  const run = async ({ host, places }: Awaited<ReturnType<typeof start>>) => {
    const daemon = await startDaemon(host, places);
    stack.defer(async () => {
      daemon.signal("SIGTERM");
      await daemon.exited;
    });
  };
  const [hub, one, two] = lan.hosts;
  if (hub === undefined || one === undefined || two === undefined) throw new Error("Three hosts");
  const at = cell.hubAt ?? hub.address;
  await run(await start(hub, ["--is-lighthouse", "--public-ip", at, "--tcp-fallback", ":443"]));
  await Bun.sleep(3000);
  const [a, b] = [await start(one), await start(two)];
  const began = performance.now();
  await Promise.all([run(a), run(b)]);
  const { ip_address: address } = await statusOf(b.places, "acme");
  const s = await untilPing(one, address, began, cell);
  const { stdout } = await command(a.places, ["ping", two.name, "--count", "1", "--json"]);
  const path = /"path": ?"([^"]*)"/.exec(stdout)?.[1] ?? "none";
  return { s, path: path.replace(/ \[?[\da-f.:]+\]?:.*/, "") };
}

async function tailscale(directory: string, lan: Lan, cell: Cell): Promise<Result> {
  using stack = new DisposableStack();
  const [hub, one, two] = lan.hosts;
  if (hub === undefined || one === undefined || two === undefined) throw new Error("Three hosts");
  const [tailnet = "", daemon, cli = ""] = (["tailnet", "tailscaled", "tailscale"] as const).map(goProgram);
  const control = Bun.spawn(hub.inside([tailnet, cell.hubAt ?? hub.address]), {
    stdout: "pipe",
    stderr: "ignore",
  });
  stack.defer(() => control.kill());
  const { value } = await control.stdout.getReader().read();
  const url = new TextDecoder().decode(value).trim();
  const nodes = [one, two].map((host) => {
    const own = join(directory, `tailscale-${host.name}`);
    mkdirSync(own);
    writeFileSync(join(own, "resolv.conf"), "");
    const socket = join(own, "socket");
    const ask = (...words: string[]) =>
      Bun.spawn(host.inside([cli, `--socket=${socket}`, ...words]), { stdout: "pipe", stderr: "ignore" });
    const script = `mount --make-rprivate / && mount --bind ${own}/resolv.conf /etc/resolv.conf && exec ${daemon} --tun=ts0 --state=mem: --statedir=${own} --socket=${socket} --no-logs-no-support`;
    const run = () => {
      const child = host.spawn(["unshare", "--mount", "sh", "-c", script], {
        env: { PATH: process.env["PATH"] ?? "" },
      });
      stack.defer(() => child.kill("SIGKILL"));
    };
    return { host, ask, run };
  });
  const began = performance.now();
  const addresses = await Promise.all(
    nodes.map(async ({ host, ask, run }) => {
      run();
      await until(
        async () =>
          (await ask(
            "up",
            `--login-server=${url}`,
            "--accept-dns=false",
            `--hostname=${host.name}`,
            "--timeout=30s",
          ).exited) === 0,
        { ms: giveUpMs, everyMs: 100 },
      );
      return (await new Response(ask("ip", "-4").stdout).text()).trim();
    }),
  );
  const s = await untilPing(one, addresses[1] ?? "", began, cell);
  const said = await new Response(
    nodes[0]?.ask("ping", "--c=1", "--until-direct=false", addresses[1] ?? "").stdout ?? null,
  ).text();
  const path = said.includes("via DERP") ? "relayed" : said.includes(" via ") ? "direct" : "none";
  return { s, path };
}

buildAgent();
const hasOthers = hasTailscale();
const chosen = process.argv.slice(2);
print(`${"network".padEnd(18)}${"ours".padEnd(26)}Tailscale`);
for (const [name, cell] of Object.entries(cells)) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  const results: Result[] = [];
  for (const run of hasOthers ? [ours, tailscale] : [ours]) {
    using directory = temporaryDirectory();
    using lan = makeLan(["lh", "a", "b"]);
    using stack = new DisposableStack();
    const [hub, a, b] = lan.hosts;
    if (hub === undefined || a === undefined || b === undefined) throw new Error("Three hosts");
    cell.prepare(a, b, stack, hub);
    results.push(
      await run(directory.path, lan, cell).catch((error: unknown) => ({
        s: undefined,
        path: String(error).slice(0, 60),
      })),
    );
  }
  const text = ({ s, path }: Result) => `${s === undefined ? "never" : `${s.toFixed(1)} s`}, ${path}`;
  const [own, other] = results;
  if (own === undefined) continue;
  const isLate = own.s === undefined || own.s > (other?.s ?? Infinity) + 2;
  if (isLate) process.exitCode = 1;
  print(
    `${name.padEnd(18)}${text(own).padEnd(26)}${other === undefined ? "" : text(other)}${isLate ? "  MISSED" : ""}`,
  );
}
