// Uses an exit for the packets of this machine, as long as root or the daemon's group wants it: asks the exits for echoes,
// chooses one, and keeps engine and kernel to that. Without `strict`, packets take the machine's own default route within seconds
// after the exit has died, and the exit again when it answers.

import { join } from "node:path";
import { given } from "../../base/given.ts";
import { messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { isMap, listOf, valueAt, type YamlMap, type YamlValue } from "../../base/yaml.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import { Echoes } from "../../platform/network/echoes.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import { readExitState, writeExitState, type ExitState } from "../files/granted/exit-state.ts";
import { exitUseOf, insideExit, staysClosed, type Exit, type ExitUse } from "../files/granted/exits.ts";
import type { Machine } from "../files/granted/machine-facts.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { applyExit } from "./apply-plan.ts";
import { noPlan, planExit, type ExitPlan } from "./exit-plan.ts";
import { chooseExit, graceMs, othersEveryMs, roundMs, type Choice, type ExitEcho } from "./choose-exit.ts";
import { MachineFacts, factsOf } from "./exit-facts.ts";
import { keepBlock, leaveKernel } from "./leave-exit.ts";

type ExitDeps = {
  command: string;
  control: Pick<EngineControl, "reload">;
  openEcho: OpenEcho;
  log: Log;
  system: Pick<System, "run" | "platform" | "machineState" | "lookup" | "sleep" | "now" | "monotonic">;
};
type Place = { slug: string; directory: string };

/** At a start, until it is known whether the exit answers. */
const startRoundMs = 250;
/** "OAE1" in hex, in front of echo requests. */
const echoMark = "4f414531";

/** What `status` shows of a choice. */
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
  /** When exits were left, in monotonic ms, by overlay address. */
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

  /** How long to wait for the next round. */
  pauseMs(): number {
    return this.#deps.system.monotonic() - this.#tried.at > graceMs ? roundMs : startRoundMs;
  }

  close(): void {
    this.#echoes.close();
  }

  /** One round: chooses an exit, and leads the packets to it. A failure is logged, and the next round tries again. */
  async step(): Promise<void> {
    // Read in each round: `exit use off` and another `exit use` may follow each other between two rounds.
    const use = exitUseOf(this.#place.directory);
    const { log } = this.#deps;
    try {
      if (use === undefined) await this.#leaveOnce();
      else await this.#follow(use);
    } catch (error) {
      const reason = messageOf(error);
      if (reason !== this.#failure)
        log.warn(`Cannot ${use === undefined ? "leave" : "use"} the exit for now`, {
          team: this.#place.slug,
          reason,
        });
      this.#failure = reason;
    }
  }

  /** No exit is wanted any more. Throws if packets may still be led or blocked. */
  async #leaveOnce(): Promise<void> {
    if (this.#hasLeft || staysClosed(this.#place.directory)) return;
    const reason = await leaveKernel(this.#place, this.#deps.system);
    if (reason !== undefined) throw new Error(reason);
    this.#hasLeft = true;
  }

  async #follow(use: ExitUse): Promise<void> {
    this.#hasLeft = false;
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

  /** Without a working exit and without `strict` the plan is empty: packets take the machine's own default route. */
  async #plan(use: ExitUse): Promise<ExitPlan> {
    const isLed = use.strict || this.#wasUsed;
    const facts = isLed ? factsOf(this.#place, use, await this.#facts.read()) : undefined;
    if (facts !== undefined) return planExit(facts);
    // A damaged configuration opens no block: what is in force stays.
    if (use.strict) throw new Error("its configuration names no interface");
    return noPlan;
  }
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

/** The address by which a configuration leads packets to an exit (withExit). */
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
  if (exitIn(readOwnYaml(text, "config.yml")) === (exit?.via ?? exit?.ip)) return;
  // No change of its own: it renders config.yml anew, with the exit of the state file.
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
