// What a plan for the kernel (exit-plan.ts) depends on: the files of all organizations of this machine, and its networks.

import { dirname, join } from "node:path";
import { fileStamp, textOrEmpty } from "../../base/files.ts";
import { parseNetworks } from "../../base/ip.ts";
import { valueAt } from "../../base/yaml.ts";
import type { System } from "../../base/system.ts";
import { hasInterface } from "../../platform/machine-state.ts";
import { exitMark, type ExitUse } from "../files/granted/exits.ts";
import { ownNetworks, readMachine, type Machine } from "../files/granted/machine-facts.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import type { ExitFacts } from "./exit-plan.ts";

type FactsSystem = Pick<System, "run" | "platform" | "machineState" | "lookup" | "sleep" | "monotonic">;
type Place = { slug: string; directory: string };

/** The facts of the machine are read again after this time. */
const machineEveryMs = 60_000;

/** Reads the machine's facts again when the configuration of an organization changes, and after a minute. */
export class MachineFacts {
  readonly #place: Place;
  readonly #system: FactsSystem;
  #machine: Machine | undefined;
  /** What the files were when `#machine` was read. */
  #stamp = "";
  #readAt = -Infinity;

  constructor(place: Place, system: FactsSystem) {
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
    const isOutdated = stamp !== this.#stamp || now - this.#readAt > machineEveryMs;
    if (this.#machine !== undefined && !isOutdated)
      // Interfaces and routes change without a file, and are cheap to read.
      return { ...this.#machine, ...(await this.#system.machineState()) };
    this.#machine = await readMachine(directory, this.#system);
    this.#stamp = stamp;
    this.#readAt = now;
    return this.#machine;
  }
}

/**
 * Undefined while config.yml names no interface, or does not mark the engine's packets: without the mark they would be led into
 * their own tunnel. With `strict` the mark may be missing: packets must be blocked all the same.
 */
export function factsOf({ slug, directory }: Place, use: ExitUse, machine: Machine): ExitFacts | undefined {
  const config = readOwnYaml(textOrEmpty(directory, "config.yml"), "config.yml");
  const mark = valueAt(config, "listen.so_mark");
  // `tenants`: the organizations of this machine (machine-facts.ts).
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
