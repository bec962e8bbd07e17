// Uses an exit for the packets of this machine, as long as root or the daemon's group wants it: asks the exits for echoes,
// chooses one, and keeps engine and kernel to that. Without `strict`, packets go beside a dead exit within seconds, and
// back when it answers.

import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { given } from "../../base/given.ts";
import { messageOf } from "../../base/errors.ts";
import { fileStamp, readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import { parseNetworks } from "../../base/ip.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { isMap, listOf, valueAt, type YamlMap, type YamlValue } from "../../base/yaml.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import { Echoes } from "../../platform/network/echoes.ts";
import type { Change } from "../../platform/apply.ts";
import { keepTable, tableRemoval, tableScript } from "../../platform/nftables.ts";
import { hasInterface } from "../../platform/machine-state.ts";
import type { EngineControl } from "../engine/engine.ts";
import { readExitState, writeExitState, type ExitState } from "../files/granted/exit-state.ts";
import {
  blockFile,
  exitMark,
  exitUseOf,
  insideExit,
  othersWithExit,
  staysClosed,
  type Exit,
  type ExitUse,
} from "../files/granted/exits.ts";
import { ownNetworks, readMachine, type Machine } from "../files/granted/machine-facts.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { ipProgram } from "../../platform/network/kernel.ts";
import { applyExit, rulesRemoval } from "./apply-plan.ts";
import { noPlan, planExit, type ExitFacts, type ExitPlan } from "./exit-plan.ts";

type ExitDeps = {
  command: string;
  control: Pick<EngineControl, "reload">;
  openEcho: OpenEcho;
  log: Log;
  system: Pick<System, "run" | "platform" | "machineState" | "lookup" | "sleep" | "now" | "monotonic">;
};
type Place = { slug: string; directory: string };

/** One round, in ms. */
const roundMs = 1000;
/** At a start, until it is known whether the exit answers. */
const startRoundMs = 250;
const machineEveryMs = 60_000;
/** An exit without an answer for this long is dead. The one in use is asked each round. */
const deadMs = 3000;
const othersEveryMs = 4000;
/** "OAE1" in hex, in front of echo requests. */
const echoMark = "4f414531";
/** An exit that is tried has this time to answer first. */
const graceMs = 2500;
/** An exit that was left is not tried again for this long. */
const restMs = 30_000;

/** The last echo of an exit: its arrival in monotonic ms, and its round trip in ms. */
type ExitEcho = { at: number; rtt: number };

type ExitHistory = {
  /** Monotonic ms, as all times here. */
  now: number;
  /** By overlay address. The exit in use answers from inside its tunnel. */
  heard: ReadonlyMap<string, ExitEcho>;
  /** Since when the exit in use is tried. */
  triedAt: number;
  /** When other exits were left, by overlay address. */
  leftAt: ReadonlyMap<string, number>;
};

/** `isSure`: the exit had enough time to answer, so `isAlive` is final. */
export type Choice = { exit: Exit | undefined; isAlive: boolean; isSure: boolean };

/** Stays with an exit that lets packets through. Among others, the nearest of those that answer is tried. */
export function chooseExit(
  { candidates, exit }: ExitUse,
  { now, heard, triedAt, leftAt }: ExitHistory,
): Choice {
  const isHeard = ({ ip }: Exit, withinMs: number) => now - (heard.get(ip)?.at ?? -Infinity) < withinMs;
  if (exit !== undefined && isHeard(exit, deadMs)) return { exit, isAlive: true, isSure: true };
  // The first answer need not be that of the best one.
  if (now - triedAt <= graceMs) return { exit, isAlive: false, isSure: false };
  const [nearest] = candidates
    .filter((each) => each !== exit && isHeard(each, othersEveryMs + roundMs))
    .filter(({ ip }) => now - (leftAt.get(ip) ?? -Infinity) > restMs)
    .toSorted((a, b) => (heard.get(a.ip)?.rtt ?? 0) - (heard.get(b.ip)?.rtt ?? 0));
  if (nearest !== undefined) return { exit: nearest, isAlive: false, isSure: false };
  return { exit, isAlive: false, isSure: true };
}

function stateOf({ isAlive, isSure }: Choice, { strict }: ExitUse): ExitState["state"] {
  if (isAlive) return "used";
  if (!isSure) return "starting";
  return strict ? "blocked" : "beside";
}

/** Runs until the signal. */
export async function useExit(place: Place, deps: ExitDeps, signal: AbortSignal): Promise<void> {
  const user = new ExitUser(place, deps);
  while (!signal.aborted) {
    await user.step();
    await deps.system.sleep(user.pauseMs(), signal).catch(() => undefined);
  }
  user.close();
  if (exitUseOf(place.directory) === undefined && !staysClosed(place.directory))
    await leaveKernel(place, deps.system);
}

class ExitUser {
  readonly #place: Place;
  readonly #deps: ExitDeps;
  readonly #facts: MachineFacts;
  readonly #echoes: Echoes;
  /** Overlay address of the exit in use, and since when it is tried, in monotonic ms. */
  #tried: { ip: string | undefined; at: number };
  readonly #leftAt = new Map<string, number>();
  /** Whether packets took the exit when that was last known for sure. */
  #wasUsed: boolean;
  /** The last failure. It is logged once in a row. */
  #failure: string | undefined;
  /** No exit is wanted, and its rules were removed from the kernel. */
  #hasLeft = false;

  constructor(place: Place, deps: ExitDeps) {
    const { openEcho: open, system } = deps;
    const saved = readExitState(place.directory);
    this.#place = place;
    this.#deps = deps;
    this.#facts = new MachineFacts(place, system);
    this.#echoes = new Echoes({ open, monotonic: system.monotonic });
    this.#tried = { ip: saved?.exit, at: system.monotonic() };
    this.#wasUsed = saved?.state === "used";
  }

  pauseMs(): number {
    return this.#deps.system.monotonic() - this.#tried.at > graceMs ? roundMs : startRoundMs;
  }

  close(): void {
    this.#echoes.close();
  }

  /** One round: chooses an exit, and leads the packets to it. A failure is logged, and the next round tries again. */
  async step(): Promise<void> {
    // Read anew each time: `exit use off` and another `exit use` may follow each other between two rounds.
    const use = exitUseOf(this.#place.directory);
    if (use === undefined) return this.#leaveOnce();
    this.#hasLeft = false;
    const { log } = this.#deps;
    try {
      await this.#follow(use);
    } catch (error) {
      const reason = messageOf(error);
      if (reason !== this.#failure)
        log.warn("Cannot use the exit for now", { team: this.#place.slug, reason });
      this.#failure = reason;
    }
  }

  async #leaveOnce(): Promise<void> {
    if (this.#hasLeft || staysClosed(this.#place.directory)) return;
    await leaveKernel(this.#place, this.#deps.system);
    this.#hasLeft = true;
  }

  async #follow(use: ExitUse): Promise<void> {
    const place = this.#place;
    const { log, system } = this.#deps;
    const choice = await this.#choose(use);
    if (choice.isSure) this.#wasUsed = choice.isAlive;
    const { exit } = choice;
    // applyChanges reads the exit from this file. The final state is written once the kernel follows it.
    if (readExitState(place.directory)?.exit !== exit?.ip)
      noteState(place, use, { exit, state: "starting" }, this.#deps);
    const chosen = { ...use, exit };
    await configure(place, chosen, this.#deps);
    this.#noteTried(exit?.ip);
    const plan = await this.#plan(chosen);
    // All this took time: the user may have ended the use of the exit meanwhile.
    if (exitUseOf(place.directory) === undefined) return;
    keepBlock(place, use.strict ? plan.nft : undefined);
    const reason = await applyExit(place.slug, plan, system);
    if (reason === undefined) noteState(place, use, { exit, state: stateOf(choice, use) }, this.#deps);
    else if (reason !== this.#failure)
      log.error("Cannot lead packets to the exit", { team: place.slug, reason });
    this.#failure = reason;
  }

  async #choose(use: ExitUse): Promise<Choice> {
    const machine = await this.#facts.read();
    const tenant = machine.tenants.find((each) => each.slug === this.#place.slug);
    const heard = await askExits(this.#echoes, tenant, use);
    const now = this.#deps.system.monotonic();
    return chooseExit(use, { now, heard, triedAt: this.#tried.at, leftAt: this.#leftAt });
  }

  #noteTried(ip: string | undefined): void {
    if (this.#tried.ip === ip) return;
    const now = this.#deps.system.monotonic();
    if (this.#tried.ip !== undefined) this.#leftAt.set(this.#tried.ip, now);
    this.#tried = { ip, at: now };
  }

  /** Without a working exit and without `strict` it is empty: packets go beside the exit. */
  async #plan(use: ExitUse): Promise<ExitPlan> {
    const isLed = use.strict || this.#wasUsed;
    const facts = isLed ? factsOf(this.#place, use, await this.#facts.read()) : undefined;
    if (facts !== undefined) return planExit(facts);
    // A damaged configuration opens no block: what is in force stays.
    if (use.strict) throw new Error("its configuration names no interface");
    return noPlan;
  }
}

/** The facts that change with the configuration, read again when a file of an organization changes. */
class MachineFacts {
  readonly #place: Place;
  readonly #system: ExitDeps["system"];
  #machine: Machine | undefined;
  /** What the files were when `#machine` was read. */
  #stamp = "";
  #readAt = -Infinity;

  constructor(place: Place, system: ExitDeps["system"]) {
    this.#place = place;
    this.#system = system;
  }

  async read(): Promise<Machine> {
    const { directory } = this.#place;
    const root = dirname(directory);
    const stamp = listOrganizations(root)
      .map((slug) => `${slug} ${fileStamp(join(root, slug, "config.yml"))}`)
      .join("\n");
    const now = this.#system.monotonic();
    const isOld = stamp !== this.#stamp || now - this.#readAt > machineEveryMs;
    if (this.#machine !== undefined && !isOld)
      return { ...this.#machine, ...(await this.#system.machineState()) };
    this.#machine = await readMachine(directory, this.#system);
    this.#stamp = stamp;
    this.#readAt = now;
    return this.#machine;
  }
}

/**
 * Undefined while the engine's configuration does not mark its packets: they would be led into their own tunnel. With `strict`,
 * packets are blocked all the same.
 */
function factsOf({ slug, directory }: Place, use: ExitUse, machine: Machine): ExitFacts | undefined {
  const config = readOwnYaml(readTextIfThere(join(directory, "config.yml")) ?? "", "config.yml");
  const mark = valueAt(config, "listen.so_mark");
  const tenant = machine.tenants.find((each) => each.slug === slug);
  const device = tenant?.inForce.device;
  if (tenant === undefined || device === undefined) return undefined;
  if (!use.strict && (typeof mark !== "number" || mark === 0)) return undefined;
  const others = machine.tenants.filter((each) => each.slug !== slug);
  const { attached } = ownNetworks(machine);
  const devices = new Set(attached.map((each) => each.device));
  return {
    device,
    own: {
      ip: tenant.addresses.find((each) => !each.includes(":")) ?? "",
      ip6: tenant.addresses.find((each) => each.includes(":")),
    },
    exit: use.exit,
    hasDevice: hasInterface(device),
    strict: use.strict,
    lan: use.lan,
    mark: typeof mark === "number" && mark !== 0 ? mark : exitMark,
    // Own hosts first: if there are too many, those of other organizations are left out.
    hosts: machine.hosts
      .toSorted((a, b) => Number(b.of === slug) - Number(a.of === slug))
      .map(({ network }) => network),
    others: {
      networks: parseNetworks(others.flatMap((each) => [...each.networks, ...each.routes])).map(
        ({ text }) => text,
      ),
      devices: others.flatMap(({ inForce }) => inForce.device ?? []),
    },
    overlay: tenant.networks,
    attached: machine.addresses.flatMap((each) => (devices.has(each.device) ? [each.address] : [])),
    nameServers: machine.nameServers,
  };
}

/**
 * Asks the exit in use, now and then the others, and returns what was heard by address. The exit in use answers from inside: by
 * its overlay address an exit also answers whose tunnel has the certificate from before it was one, or that cannot forward.
 */
async function askExits(
  echoes: Echoes,
  tenant: Machine["tenants"][number] | undefined,
  { candidates, exit }: ExitUse,
): Promise<ReadonlyMap<string, ExitEcho>> {
  const from = tenant?.addresses.find((each) => !each.includes(":")) ?? "";
  const inside = { from: `${from}%${tenant?.inForce.device ?? ""}`, to: insideExit, mark: echoMark };
  const keyOf = ({ ip }: Exit) => (ip === exit?.ip ? `inside ${ip}` : ip);
  const asked = candidates.map((each) => {
    const key = keyOf(each);
    return [key, key === each.ip ? { from, to: each.ip, mark: echoMark } : inside] as const;
  });
  echoes.set(new Map(asked));
  await echoes.send((key) => (key.startsWith("inside") ? 0 : othersEveryMs));
  return new Map(
    candidates.flatMap((each) => {
      const { answeredAt: at, rttMs: rtt } = echoes.get(keyOf(each)) ?? {};
      return at === undefined || rtt === undefined ? [] : [[each.ip, { at, rtt }]];
    }),
  );
}

/** Writes the table that a unit loads at a boot before the network is up (unit-exit.ts). Without a body: removes it. */
function keepBlock({ slug, directory }: Place, body: string | undefined): void {
  const path = blockFile(directory);
  const text = body === undefined ? undefined : tableScript("exit", slug, body);
  if (text === undefined) rmSync(path, { force: true });
  else if (readTextIfThere(path) !== text) writeFileAtomic(path, text, 0o644);
}

/**
 * Takes away this organization's rules, routes and block, and returns why that failed. The rules may be those of another
 * organization meanwhile. The caller reloads the engine.
 */
export async function leaveKernel(
  { slug, directory }: Place,
  system: Pick<System, "run" | "platform">,
): Promise<string | undefined> {
  if (ipProgram(system) === undefined) return undefined;
  keepBlock({ slug, directory }, undefined);
  return othersWithExit({ slug, directory }).length === 0
    ? applyExit(slug, noPlan, system)
    : keepTable("exit", slug, undefined, system);
}

/** What leaveKernel does, as a list of changes. `gone`: organizations whose own list is applied before. */
export async function exitRemoval(
  { slug, directory }: Place,
  system: Pick<System, "run" | "platform">,
  gone: readonly string[] = [],
): Promise<Change[]> {
  const isOthers = othersWithExit({ slug, directory }).some((each) => !gone.includes(each));
  return [
    { change: "remove", path: blockFile(directory) },
    ...(isOthers ? [] : await rulesRemoval(system)),
    ...(await tableRemoval("exit", slug, system)),
  ];
}

/** The overlay address of the exit that a configuration has. */
function exitIn(config: YamlMap): YamlValue | undefined {
  const ours = listOf(valueAt(config, "tun.unsafe_routes")).filter(isMap);
  return ours.find(({ route, install }) => route === "0.0.0.0/0" && install === false)?.["via"];
}

/** Puts the exit into the engine's configuration. A check-in that rewrites the configuration keeps the exit. */
async function configure(
  place: Place,
  { exit }: ExitUse,
  { command, control, system }: ExitDeps,
): Promise<void> {
  const { directory } = place;
  const text = readTextIfThere(join(directory, "config.yml")) ?? "";
  if (exitIn(readOwnYaml(text, "config.yml")) === exit?.ip) return;
  await applyChanges(place, {}, { command, control, system });
}

const sentences: Readonly<Record<ExitState["state"], string>> = {
  starting: "Looking for the exit",
  used: "Packets for the internet take the exit",
  blocked: "The exit does not answer: packets for the internet are dropped until it does, as --strict says",
  beside: "The exit does not answer: packets for the internet go beside it until it does",
};

/** Writes and logs the state, if it is another one. */
function noteState(
  { directory, slug }: Place,
  use: ExitUse,
  { exit, state }: { exit: Exit | undefined; state: ExitState["state"] },
  { log, system }: ExitDeps,
): void {
  const noted = readExitState(directory);
  if (noted?.state === state && noted.exit === exit?.ip) return;
  const isUnknown = use.candidates.length === 0;
  const why = isUnknown ? "the control plane names no such exit for this node" : undefined;
  writeExitState(directory, {
    ...given({ exit: exit?.ip, name: exit?.name, why }),
    state,
    since: system.now(),
  });
  log[state === "used" || state === "starting" ? "info" : "warn"](sentences[state], {
    team: slug,
    ...given({ exit: exit?.name, why }),
  });
}
