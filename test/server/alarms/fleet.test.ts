// A fleet of 40 nodes with random faults, on the real control plane with a virtual clock. What it tells is compared with a
// model that knows the truth: which faults there were, and when they should be known. `SOAK`: ten times as many faults.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { env } from "node:process";
import { expect, test } from "bun:test";
import { makeAlarms } from "../../../src/server/alarms/evaluate.ts";
import { recordAway } from "../../../src/server/nodes/contact/away-nodes.ts";
import { endSilentNodes } from "../../../src/server/nodes/contact/silence.ts";
import { registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { makeRandom } from "../../support/random.ts";
import { makeTestServer } from "../../support/server.ts";

const second = 1000;
const minute = 60 * second;
const stepMs = 5 * second;
/** Within so long after its threshold an alarm is told. */
const promptMs = 30 * second;
/** After an absence of the control plane nothing is known of nodes for this long. */
const settleMs = 160 * second;
const thresholds = { lighthouse: 3, relay: 3, router: 3, node: 15, path: 5 } as const;
type Kind = keyof typeof thresholds;

type Member = {
  node: RegisteredNode;
  role: "lighthouse" | "relay" | "router" | "node" | "desktop";
  site: number | undefined;
  peers: Member[];
  /** Whether the machine is on, and its agent talks to the control plane. */
  isUp: boolean;
  isMute: boolean;
  nextAt: number;
  contactAt: number;
  /** By peer: what it reported last. */
  reported: Map<Member, string>;
  /** Until when no fault chooses it. */
  restsUntil: number;
};

/** A fault, and what must be told of it. Times are those of the world, ms. */
type Fault = {
  what: string;
  kind: Kind | undefined;
  heads: Member[];
  members: Member[];
  /** Alarms that must be told: one, or of a flapping node three. */
  alarms: number;
  begin(): void;
  end(): void;
  beganAt: number;
  endsAt: number;
  /** When the control plane can have known: the time that counts began anew after each absence. */
  knownFrom: number;
  /** ms of running time since it began. */
  ranMs: number;
  dueAt: number | undefined;
  raised: { at: number; id: number }[];
  ended: number[];
  isOver: boolean;
  wasSetBack?: boolean;
  /** Of a path: whose. */
  pairs: (readonly [Member, Member])[];
  /** When the last of its members was well for the control plane. */
  wellAt: number | undefined;
};

async function makeFleet(seed: number) {
  const random = makeRandom(seed);
  const server = await makeTestServer();
  const org = await server.organization("acme");
  const members: Member[] = [];
  const add = async (name: string, role: Member["role"], site?: number) => {
    const node = await registerNode(server, org, name, { mode: role === "desktop" ? "desktop" : "server" });
    members.push({
      node,
      role,
      site,
      peers: [],
      isUp: true,
      isMute: false,
      nextAt: 0,
      contactAt: 0,
      reported: new Map(),
      restsUntil: 0,
    });
    const change = {
      lighthouse: "is_lighthouse = 1",
      relay: "is_relay = 1",
      router: `subnets = '["192.168.${node.id}.0/24"]'`,
      node: "",
      desktop: "",
    }[role];
    // Without the groups and rules of its own way, which is another test's.
    if (change !== "")
      await server.db.write((tx) => tx.run(`UPDATE nodes SET ${change} WHERE id = $1`, [node.id]));
  };
  for (let n = 0; n < 3; n++) await add(`light-${n}`, "lighthouse");
  for (let n = 0; n < 3; n++) await add(`relay-${n}`, "relay");
  for (let site = 0; site < 4; site++) {
    await add(`gw-${site}`, "router", site);
    for (let n = 0; n < 4; n++) await add(`site-${site}-${n}`, "node", site);
  }
  for (let n = 0; n < 8; n++) await add(`server-${n}`, "node");
  for (let n = 0; n < 6; n++) await add(`laptop-${n}`, "desktop");
  for (const member of members) {
    const others = members.filter((each) => each !== member);
    const chosen = new Set(others.filter(({ role }) => role === "lighthouse"));
    while (chosen.size < 9) chosen.add(others[Math.floor(random() * others.length)] ?? member);
    member.peers = [...chosen];
  }
  // Probes are mutual.
  for (const member of members)
    for (const peer of member.peers) if (!peer.peers.includes(member)) peer.peers.push(member);
  return { server, org, members, random };
}

type Fleet = Awaited<ReturnType<typeof makeFleet>>;

/** The world: its time goes on while the control plane sleeps, whose clock may be set. */
class World {
  at = 0;
  /** What the clock of the control plane is ahead of the world's. */
  aheadMs: number;
  readonly cut = new Set<string>();
  /** Pairs of which one end says the truth, and the other a lie. */
  readonly lies = new Set<string>();
  readonly faults: Fault[] = [];
  readonly wrong: string[] = [];
  private evaluate: ReturnType<typeof makeAlarms>;
  private seenEvent = 0;
  private turn = 0;

  readonly fleet: Fleet;

  constructor(fleet: Fleet) {
    this.fleet = fleet;
    this.aheadMs = fleet.server.clock.ms;
    this.evaluate = makeAlarms(fleet.server.app.services);
    for (const member of fleet.members) member.nextAt = fleet.random() * 50 * second;
  }

  between(from: number, to: number): number {
    return from + this.fleet.random() * (to - from);
  }
  pick<T>(all: readonly T[]): T | undefined {
    return all[Math.floor(this.fleet.random() * all.length)];
  }
  answers(from: Member, to: Member): boolean {
    const key = `${from.node.id} ${to.node.id}`;
    if (this.lies.has(key)) return false;
    return to.isUp && !this.cut.has(key);
  }

  /** The check-ins that are due. */
  async contact(): Promise<void> {
    for (const member of this.fleet.members) {
      if (member.nextAt > this.at) continue;
      member.nextAt = this.at + this.between(25, 55) * second;
      if (!member.isUp || member.isMute) continue;
      const changed = [...new Set(member.peers)].flatMap((peer) => {
        const probe = this.answers(member, peer) ? "answers" : "broken";
        if (member.reported.get(peer) === probe) return [];
        member.reported.set(peer, probe);
        return [{ peer: peer.node.ip, path: "direct", probe }];
      });
      const { status } = await member.node.checkin({
        config_version: 1,
        ...(changed.length === 0 ? {} : { paths: { changed } }),
      });
      if (status !== 200) this.wrong.push(`check-in of ${member.node.name}: ${status}`);
      member.contactAt = this.at;
    }
    await this.fleet.server.app.services.reports.stop();
    await this.fleet.server.app.services.pathReports.stop();
  }

  /** The control plane is not there. `isNew`: another process comes back. */
  absent(span: number, isNew: boolean): void {
    const ms = Math.round(span);
    // It lasts for its time while the control plane runs, so that the model knows what is due.
    for (const fault of this.faults) if (this.at < fault.endsAt) fault.endsAt += ms;
    this.at += ms;
    if (isNew) this.evaluate = makeAlarms(this.fleet.server.app.services);
    // Nodes try again within a minute.
    for (const member of this.fleet.members) member.nextAt = this.at + this.between(0, 60) * second;
    for (const fault of this.faults) fault.knownFrom = this.at;
  }

  stepClock(span: number): void {
    const ms = Math.round(span);
    this.aheadMs += ms;
    for (const fault of this.faults) {
      fault.knownFrom = this.at;
      // Times from before are in the future now, and by another step a gap: what lasts counts anew.
      fault.wasSetBack ||= ms < 0;
      if (fault.wasSetBack) fault.ranMs = 0;
    }
  }

  async step(): Promise<void> {
    this.at += stepMs;
    const { server } = this.fleet;
    server.clock.ms = this.at + this.aheadMs;
    await this.contact();
    for (const fault of this.faults.filter(({ isOver }) => !isOver)) this.follow(fault);
    await endSilentNodes(server.app.services);
    if (this.turn++ % 2 === 0) await this.evaluate(await recordAway(server.app.services));
    await this.hear();
  }

  /** The model: when the alarm of a fault is due, and when it is over. */
  private follow(fault: Fault): void {
    if (this.at >= fault.endsAt) {
      const isPath = fault.kind === "path";
      // It checks in, or two that are online say that it answers.
      const isBack = (member: Member) =>
        member.contactAt >= fault.endsAt ||
        member.peers.filter(
          (peer) => peer.contactAt >= fault.endsAt && peer.reported.get(member) === "answers",
        ).length >= 2;
      if (isPath ? fault.pairs.every((pair) => isSaid(pair, "answers")) : fault.members.every(isBack))
        fault.wellAt ??= Math.max(this.at, fault.knownFrom + settleMs);
      return;
    }
    fault.ranMs += stepMs;
    if (fault.kind === undefined || fault.dueAt !== undefined || fault.alarms === 0) return;
    const needMs = thresholds[fault.kind] * minute;
    // Both ends are heard, and neither says that it reaches the other.
    const saying = (probe: string) => fault.pairs.some((pair) => isSaid(pair, probe));
    const isKnown =
      fault.kind !== "path" ||
      (fault.members.every(({ contactAt }) => contactAt >= fault.knownFrom) &&
        saying("broken") &&
        !saying("answers"));
    if (!isKnown) {
      fault.ranMs = 0;
      return;
    }
    if (fault.ranMs >= needMs && this.at - fault.knownFrom >= settleMs) fault.dueAt = this.at;
  }

  /** What the control plane told. */
  private async hear(): Promise<void> {
    const { db } = this.fleet.server;
    const news = await db.all(
      "SELECT id, type, subject, after FROM events WHERE id > $1 AND type LIKE 'alarm.%' ORDER BY id",
      [this.seenEvent],
    );
    for (const { id, type, subject, after } of news) {
      this.seenEvent = Number(id);
      const name = `${String(JSON.parse(String(after)).name)} at ${Math.round(this.at / second)} s`;
      const alarm = Number(String(subject).slice(6));
      if (type === "alarm.ended") {
        const fault = this.faults.find(({ raised }) => raised.some((each) => each.id === alarm));
        if (fault === undefined) this.wrong.push(`ended, of no fault: ${name}`);
        else {
          fault.ended.push(this.at);
          if (fault.alarms === 1 && fault.wellAt === undefined)
            this.wrong.push(`ended while it lasts: ${name}`);
        }
        continue;
      }
      const row = await db.get("SELECT kind, heads, rest FROM alarms WHERE id = $1", [alarm]);
      const [heads, rest]: number[][] = [row?.["heads"], row?.["rest"]].map((keys) =>
        JSON.parse(String(keys)).map(Number),
      );
      const isAbout = ({ kind, heads: own, members, beganAt, wellAt }: Fault) => {
        if (kind !== row?.["kind"] || this.at < beganAt || wellAt !== undefined) return false;
        const ids = (of: Member[]) =>
          of
            .map(({ node }) => node.id)
            .sort((a, b) => a - b)
            .join(" ");
        if (kind === "path") return own.some(({ node }) => heads?.includes(node.id));
        const all = [...(heads ?? []), ...(rest ?? [])].sort((a, b) => a - b).join(" ");
        return ids(own) === [...(heads ?? [])].sort((a, b) => a - b).join(" ") && all === ids(members);
      };
      const fault = this.faults.find(isAbout);
      if (fault === undefined) this.wrong.push(`of no fault: ${name}`);
      else fault.raised.push({ at: this.at, id: alarm });
    }
  }
}

const isSaid = ([one, other]: readonly [Member, Member], probe: string) =>
  one.reported.get(other) === probe || other.reported.get(one) === probe;

type Maker = (world: World) => Partial<Fault> | undefined;

const free = ({ fleet, at, faults }: World, is: (member: Member) => boolean) => {
  const busy = new Set(faults.flatMap(({ isOver, members }) => (isOver ? [] : members)));
  return fleet.members.filter((each) => is(each) && !busy.has(each) && each.restsUntil <= at);
};
/** Well below its threshold, or well above it, absences included. */
const spanOf = (world: World, kind: Kind, isLong: boolean) =>
  isLong
    ? 2 * thresholds[kind] * minute + world.between(11, 14) * minute
    : world.between(0.3, 0.55) * thresholds[kind] * minute;

/** Machines that stop, together. */
const stopping =
  (what: string, role: Member["role"]): Maker =>
  (world) => {
    const chosen = world.pick(free(world, (each) => each.role === role && each.site === undefined));
    if (chosen === undefined) return undefined;
    const isLong = world.between(0, 1) < 0.7;
    const kind = role === "desktop" ? undefined : role;
    return {
      what: `${what} ${chosen.node.name} ${isLong ? "" : "for short"}`,
      kind,
      heads: [chosen],
      members: [chosen],
      alarms: isLong && kind !== undefined ? 1 : 0,
      begin: () => void (chosen.isUp = false),
      end: () => void (chosen.isUp = true),
      endsAt: spanOf(world, kind ?? "node", isLong),
    };
  };

const makers: readonly (readonly [weight: number, make: Maker])[] = [
  [4, stopping("node", "node")],
  [2, stopping("laptop", "desktop")],
  [2, stopping("lighthouse", "lighthouse")],
  [2, stopping("relay", "relay")],
  [
    3,
    (world) => {
      const gateways = free(world, ({ role }) => role === "router");
      const gateway = world.pick(gateways);
      const members = free(world, ({ site }) => site !== undefined && site === gateway?.site);
      if (gateway === undefined || members.length < 5) return undefined;
      const isLong = world.between(0, 1) < 0.8;
      return {
        what: `site of ${gateway.node.name} ${isLong ? "" : "for short"}`,
        kind: "router",
        heads: [gateway],
        members,
        alarms: isLong ? 1 : 0,
        begin: () => members.forEach((each) => (each.isUp = false)),
        end: () => members.forEach((each) => (each.isUp = true)),
        endsAt: spanOf(world, "router", isLong),
      };
    },
  ],
  [
    3,
    (world) => {
      const one = world.pick(free(world, ({ role }) => role !== "lighthouse"));
      const other = world.pick(
        free(world, (each) => one?.peers.includes(each) === true && each.role !== "lighthouse"),
      );
      if (one === undefined || other === undefined) return undefined;
      const isLong = world.between(0, 1) < 0.7;
      const keys = [`${one.node.id} ${other.node.id}`, `${other.node.id} ${one.node.id}`];
      return {
        what: `path ${one.node.name} ${other.node.name} ${isLong ? "" : "for short"}`,
        kind: "path",
        heads: [one, other],
        members: [one, other],
        pairs: [[one, other]],
        alarms: isLong ? 1 : 0,
        begin: () => keys.forEach((key) => world.cut.add(key)),
        end: () => keys.forEach((key) => world.cut.delete(key)),
        endsAt: spanOf(world, "path", isLong),
      };
    },
  ],
  [
    2,
    // The link between two sites.
    (world) => {
      const gateways = free(world, ({ role }) => role === "router");
      const sites = [world.pick(gateways)?.site, world.pick(gateways)?.site];
      const [here, there] = sites.map((site) =>
        free(world, (each) => each.site !== undefined && each.site === site),
      );
      if (here?.length !== 5 || there?.length !== 5 || sites[0] === sites[1]) return undefined;
      const pairs = here.flatMap((one) =>
        there.flatMap((other) => (one.peers.includes(other) ? [[one, other] as const] : [])),
      );
      const keys = pairs.flatMap(([one, other]) => [
        `${one.node.id} ${other.node.id}`,
        `${other.node.id} ${one.node.id}`,
      ]);
      return {
        what: `link of ${here[0]?.node.name} and ${there[0]?.node.name}`,
        kind: "path",
        heads: [...here, ...there],
        members: [...here, ...there],
        pairs,
        alarms: 1,
        begin: () => keys.forEach((key) => world.cut.add(key)),
        end: () => keys.forEach((key) => world.cut.delete(key)),
        endsAt: spanOf(world, "path", true),
      };
    },
  ],
  [
    1,
    // One end alone says that the path is broken: the other one reaches it.
    (world) => {
      const liar = world.pick(free(world, () => true));
      if (liar === undefined) return undefined;
      const keys = liar.peers.map((peer) => `${liar.node.id} ${peer.node.id}`);
      return {
        what: `liar ${liar.node.name}`,
        kind: undefined,
        heads: [liar],
        members: [liar],
        alarms: 0,
        begin: () => keys.forEach((key) => world.lies.add(key)),
        end: () => keys.forEach((key) => world.lies.delete(key)),
        endsAt: world.between(8, 12) * minute,
      };
    },
  ],
  [
    2,
    // Its agent is away, its engine is not: peers reach it.
    (world) => {
      const chosen = world.pick(free(world, ({ role }) => role !== "desktop"));
      if (chosen === undefined) return undefined;
      return {
        what: `mute ${chosen.node.name}`,
        kind: undefined,
        heads: [chosen],
        members: [chosen],
        alarms: 0,
        begin: () => void (chosen.isMute = true),
        end: () => void (chosen.isMute = false),
        endsAt: world.between(18, 25) * minute,
      };
    },
  ],
  [
    1,
    (world) => {
      const chosen = world.pick(free(world, ({ role }) => role === "relay" || role === "lighthouse"));
      if (chosen === undefined || chosen.role === "desktop") return undefined;
      return {
        what: `flapping ${chosen.node.name}`,
        kind: chosen.role,
        heads: [chosen],
        members: [chosen],
        alarms: 3,
        begin: () => undefined,
        end: () => void (chosen.isUp = true),
        endsAt: 30 * minute,
      };
    },
  ],
];

const absences: readonly ((world: World) => void)[] = [
  (world) => world.absent(world.between(1, 9) * second, true),
  (world) => world.absent(world.between(15, 90) * second, true),
  (world) => world.absent(world.between(2, 40) * minute, true),
  (world) => world.absent(world.between(0.3, 20) * minute, false),
  (world) => world.stepClock(world.between(0.5, 200) * minute),
  (world) => world.stepClock(-world.between(0.5, 200) * minute),
];

async function run(seed: number, count: number): Promise<{ world: World; absent: number }> {
  const fleet = await makeFleet(seed);
  const world = new World(fleet);
  const live = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += stepMs) {
      for (const fault of world.faults) {
        if (fault.isOver) continue;
        const [head] = fault.heads;
        // Four minutes away, two minutes there.
        if (fault.what.startsWith("flapping") && head !== undefined && world.at < fault.endsAt)
          head.isUp = (world.at - fault.beganAt) % (6 * minute) >= 4 * minute;
        if (world.at >= fault.endsAt) fault.end();
        const lingersMs = fault.alarms === 3 ? 17 * minute : 2 * minute;
        if (fault.wellAt !== undefined && world.at >= fault.wellAt + lingersMs) {
          fault.isOver = true;
          // Its next one would be told as flapping.
          for (const member of fault.members) member.restsUntil = world.at + 3.2 * 60 * minute;
        }
      }
      await world.step();
    }
  };
  await live(5 * minute);
  const total = makers.reduce((sum, [weight]) => sum + weight, 0);
  let absent = 0;
  for (let made = 0; made < count;) {
    const isFlapping = world.faults.some(({ isOver, alarms }) => !isOver && alarms === 3);
    // Its next absence would begin together with another one's.
    if (isFlapping) {
      await live(minute);
      continue;
    }
    if (world.between(0, 1) < 0.22) {
      world.pick(absences)?.(world);
      absent++;
      made++;
    } else {
      let at = world.between(0, total);
      const make = makers.find(([weight]) => (at -= weight) < 0)?.[1];
      const fault = make?.(world);
      if (fault !== undefined) {
        const whole = {
          pairs: [],
          beganAt: world.at,
          knownFrom: world.at,
          ranMs: 0,
          dueAt: undefined,
          raised: [],
          ended: [],
          isOver: false,
          wellAt: undefined,
          ...fault,
        } as unknown as Fault;
        whole.endsAt += world.at;
        whole.begin();
        world.faults.push(whole);
        made++;
      }
    }
    // Silence that begins together is one cause.
    await live(world.between(150, 300) * second);
  }
  for (let left = 0; left < 60 && world.faults.some(({ isOver }) => !isOver); left++) await live(minute);
  await live(20 * minute);
  return { world, absent };
}

const isLong = env["SOAK"] === "1";
const seeds = isLong ? [1, 2, 3, 4] : [Number(env["SEED"] ?? 5)];
const perSeed = isLong ? 50 : 20;

for (const seed of seeds)
  test(`seed ${seed}: each of ${perSeed} faults is told once and in time, and nothing else`, async () => {
    const { world, absent } = await run(seed, perSeed);
    await using _ = world.fleet.server;
    const faults = world.faults.flatMap(({ what, alarms, raised, ended, dueAt, wellAt }) => {
      const wrong: string[] = [];
      if (raised.length !== alarms) wrong.push(`told ${raised.length} times instead of ${alarms}`);
      if (ended.length !== raised.length) wrong.push(`${ended.length} ends of ${raised.length}`);
      const [first] = raised;
      if (alarms === 1 && first !== undefined && (dueAt === undefined || first.at > dueAt + promptMs))
        wrong.push(`told at ${first.at / second} s, due at ${(dueAt ?? 0) / second} s`);
      const last = ended.at(-1);
      if (alarms === 1 && last !== undefined && last > (wellAt ?? 0) + promptMs)
        wrong.push(`ended at ${last / second}, well at ${(wellAt ?? 0) / second}`);
      return wrong.map((each) => `${what}: ${each}`);
    });
    expect([...world.wrong, ...faults]).toEqual([]);
    // The seed has enough of both.
    expect(absent).toBeGreaterThan(0);
    expect(world.faults.filter(({ alarms }) => alarms > 0).length).toBeGreaterThan(3);
    const open = await world.fleet.server.db.all("SELECT id FROM alarms WHERE ended_at IS NULL");
    expect(open).toEqual([]);
  }, 600_000);
