// Uses an exit for the packets of this machine, as long as root or the daemon's group wants it: asks the exits for echoes,
// chooses one, and keeps engine and kernel to that. Without `strict`, packets take the machine's own default route within seconds
// after the exit has died, and the exit again when it answers.

import { given } from "../../base/given.ts";
import { messageOf } from "../../base/errors.ts";
import { textOrEmpty } from "../../base/files.ts";
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

/** One round in the first time of an exit (graceMs), until it is known whether it answers, in ms. */
const firstRoundsMs = 250;
/** "OAE1" in hex, in front of echo requests. */
const echoMark = "4f414531";

/** The state that `status` shows. */
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
  // The choice may have been deleted since the last round. A failure is reported by the command that deleted it. If
  // permissions.json is only damaged, its choice is unknown, and the block of --strict stays (staysClosed).
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
  /** Whether packets take the exit. While a choice is unsure (`isSure`), they stay where they were. */
  #isUsed: boolean;
  /** The last failure. It is logged once in a row. */
  #failure: string | undefined;
  /** No exit is chosen on this machine, and the rules of the last one were removed from the kernel. */
  #hasLeft = false;

  constructor(place: Place, deps: ExitDeps) {
    const { openEcho: open, system } = deps;
    const saved = readExitState(place.directory);
    this.#place = place;
    this.#deps = deps;
    this.#facts = new MachineFacts(place, system);
    this.#echoes = new Echoes({ open, monotonic: system.monotonic });
    this.#tried = { ip: saved?.exit, at: system.monotonic() };
    this.#isUsed = saved?.state === "used";
  }

  /** How long to wait for the next round. */
  pauseMs(): number {
    return this.#deps.system.monotonic() - this.#tried.at > graceMs ? roundMs : firstRoundsMs;
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

  /** After the choice was deleted, not if it is unknown (staysClosed). Throws if packets may still be led or blocked. */
  async #leaveOnce(): Promise<void> {
    if (this.#hasLeft || staysClosed(this.#place.directory)) return;
    const reason = await leaveKernel(this.#place, this.#deps.system);
    if (reason !== undefined) throw new Error(reason);
    this.#hasLeft = true;
    this.#failure = undefined;
  }

  /** Chooses an exit, and brings engine and kernel to it. */
  async #follow(use: ExitUse): Promise<void> {
    this.#hasLeft = false;
    const place = this.#place;
    const { log, system } = this.#deps;
    const choice = await this.#choose(use);
    if (choice.isSure) this.#isUsed = choice.isAlive;
    const { exit } = choice;
    // `configure` takes the exit from this file. The final state is written once the kernel follows it.
    if (readExitState(place.directory)?.exit !== exit?.ip)
      noteState(place, use, { exit, state: "starting" }, this.#deps);
    await configure(place, exit, this.#deps);
    this.#noteTried(exit?.ip);
    const plan = await this.#plan({ ...use, exit });
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

  /** Notes since when the exit is tried, and when another one was left for it. */
  #noteTried(ip: string | undefined): void {
    if (this.#tried.ip === ip) return;
    const now = this.#deps.system.monotonic();
    if (this.#tried.ip !== undefined) this.#leftAt.set(this.#tried.ip, now);
    this.#tried = { ip, at: now };
  }

  /** Without a working exit and without `strict` the plan is empty: packets take the machine's own default route. */
  async #plan(use: ExitUse): Promise<ExitPlan> {
    const isLed = use.strict || this.#isUsed;
    const facts = isLed ? factsOf(this.#place, use, await this.#facts.read()) : undefined;
    if (facts !== undefined) return planExit(facts);
    // With a damaged configuration the block in force stays: throw, so that the caller changes nothing.
    if (use.strict) throw new Error("its configuration names no interface");
    return noPlan;
  }
}

/**
 * Asks the exit in use, and now and then the others. Returns the last answers, by overlay address. `tenant`: this organization on this
 * machine (machine-facts.ts). The exit in use is asked at `insideExit`, which all exits answer: at its overlay address it would also
 * answer if it cannot forward, or if its tunnel still has the certificate from before it became an exit.
 */
async function askExits(
  echoes: Echoes,
  tenant: Machine["tenants"][number] | undefined,
  { candidates, exit }: ExitUse,
): Promise<ReadonlyMap<string, ExitEcho>> {
  const from = tenant?.addresses.find((each) => !each.includes(":")) ?? "";
  // `%`: sent from the tunnel's interface, whatever routes the kernel has.
  const inside = { from: `${from}%${tenant?.inForce.device ?? ""}`, to: insideExit, mark: echoMark };
  const insideKey = `inside ${exit?.ip}`;
  const keyOf = ({ ip }: Exit) => (ip === exit?.ip ? insideKey : ip);
  const targetOf = ({ ip }: Exit) => (ip === exit?.ip ? inside : { from, to: ip, mark: echoMark });
  echoes.set(new Map(candidates.map((each) => [keyOf(each), targetOf(each)])));
  await echoes.send((key) => (key === insideKey ? 0 : othersEveryMs));
  const heard = new Map<string, ExitEcho>();
  for (const each of candidates) {
    const { answeredAt, rttMs } = echoes.get(keyOf(each)) ?? {};
    if (answeredAt !== undefined && rttMs !== undefined) heard.set(each.ip, { at: answeredAt, rttMs });
  }
  return heard;
}

/** The address to which a configuration sends packets for the internet (written by withExit). Undefined: it has no exit. */
function exitAddressIn(config: YamlMap): YamlValue | undefined {
  const routes = listOf(valueAt(config, "tun.unsafe_routes")).filter(isMap);
  return routes.find(({ route, install }) => route === "0.0.0.0/0" && install === false)?.["via"];
}

/** Puts the exit of the state file into the engine's configuration, or none. Check-ins that rewrite the configuration keep it. */
async function configure(
  place: Place,
  exit: Exit | undefined,
  { command, control, system }: ExitDeps,
): Promise<void> {
  const { directory } = place;
  const text = textOrEmpty(directory, "config.yml");
  if (exitAddressIn(readOwnYaml(text, "config.yml")) === (exit?.via ?? exit?.ip)) return;
  // `{}`: nothing but the exit, which the rendering takes from the state file.
  await applyChanges(place, {}, { command, control, system });
}

const sentences: Readonly<Record<ExitState["state"], string>> = {
  starting: "Looking for the exit",
  used: "Packets for the internet take the exit",
  blocked: "The exit does not answer: packets for the internet are dropped until it does, as --strict says",
  beside: "The exit does not answer: packets for the internet go beside it until it does",
};

/** Writes and logs the state, if it differs from the noted one. */
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
