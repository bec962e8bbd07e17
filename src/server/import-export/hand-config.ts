// Reads the configurations of a hand-made network: lighthouses and relays with their addresses, blocked certificates,
// routes. Each statement knows its file and line, and each key of each file is reported, whether it is used or not.
// Pure.

import { dirname } from "node:path";
import { AppError } from "../../base/errors.ts";
import { fateOf, isEngineSection, hasValueKeys } from "./engine-keys.ts";
import type { Placed } from "./placed-yaml.ts";

/** What a configuration says of one thing: its text, and where it is, such as `web/config.yml:12`. */
export type Statement = { text: string; at: string };

/** A key of a file that was read. */
export type KeyReport = {
  file: string;
  line: number;
  key: string;
  used: boolean;
  /** No engine is known to have it: it may be misspelt. */
  isUnknown: boolean;
  /** What the import does with it. */
  detail: string;
};

/** The configuration of one machine, of one file or of several that its engine merges. */
export type Machine = {
  /** The file with `pki.cert`; undefined if none of its files has it. */
  cert: (Statement & { file: string }) | undefined;
  amLighthouse: (Statement & { value: boolean }) | undefined;
  amRelay: (Statement & { value: boolean }) | undefined;
  /** The addresses that the machine advertises. */
  advertised: Statement[];
};

export type HandConfigs = {
  machines: Machine[];
  /** Fingerprints, lower-case hex. */
  blocklist: Set<string>;
  /** `text`: host and port. `overlay`: the address in the overlay. */
  staticHosts: (Statement & { overlay: string })[];
  lighthouses: Statement[];
  relays: Statement[];
  routes: (Statement & { via: string })[];
  keys: KeyReport[];
  /** Notes about settings that were not understood, or that an engine would refuse. */
  notes: string[];
};

export type YamlFile = { file: string; root: Placed };

/** Throws bad_configuration for what an import must not pass over: an entry of a blocklist, another cipher. */
export function readConfigs(files: readonly YamlFile[]): HandConfigs {
  const found: HandConfigs = {
    machines: [],
    blocklist: new Set(),
    staticHosts: [],
    lighthouses: [],
    relays: [],
    routes: [],
    keys: [],
    notes: [],
  };
  const readings: Reading[] = [];
  for (const { file, root } of files) {
    if (root.kind !== "map" || ![...root.entries.keys()].some(isEngineSection)) {
      found.notes.push(`${file} is not a configuration of an engine; not read.`);
      continue;
    }
    reportKeys(found.keys, file, root, []);
    const reading = new Reading(found, file, root);
    reading.readShared();
    readings.push(reading);
  }
  found.machines = machinesOf(readings).map(mergeFiles);
  return found;
}

function reportKeys(keys: KeyReport[], file: string, value: Placed, path: readonly string[]): void {
  if (value.kind !== "map") return;
  for (const [name, item] of value.entries) {
    const own = [...path, name];
    if (item.kind === "map" && item.entries.size > 0 && !hasValueKeys(own)) {
      reportKeys(keys, file, item, own);
      continue;
    }
    const fate = fateOf(own) ?? withoutFate(own, item);
    keys.push({ file, line: item.line, key: own.join("."), isUnknown: false, ...fate });
  }
}

function withoutFate(
  path: readonly string[],
  item: Placed,
): Pick<KeyReport, "used" | "isUnknown" | "detail"> {
  const [name = ""] = path;
  if (path.length > 1 || !isEngineSection(name))
    return {
      used: false,
      isUnknown: true,
      detail: "not imported: no engine is known to have this setting",
    };
  const isEmpty = item.kind === "leaf" ? item.isNull : item.kind === "map";
  const detail = isEmpty ? "empty" : "not imported: engines expect a map here";
  return { used: false, isUnknown: false, detail };
}

/** Reads one file. `readShared` adds what all machines of the network share to `found`; its other methods read what is of this machine. */
class Reading {
  readonly file: string;
  readonly #found: HandConfigs;
  readonly #root: Placed;

  constructor(found: HandConfigs, file: string, root: Placed) {
    this.#found = found;
    this.file = file;
    this.#root = root;
  }

  readShared(): void {
    const { blocklist, staticHosts, lighthouses, relays } = this.#found;
    for (const key of ["pki.blocklist", "pki.blacklist"])
      for (const each of this.#blockedIn(key)) blocklist.add(each);
    const map = this.#value("static_host_map");
    if (map?.kind === "map")
      for (const [overlay, places] of map.entries)
        for (const statement of this.#texts(places, "static_host_map"))
          staticHosts.push({ ...statement, overlay });
    else if (map !== undefined) this.#note(map.line, "static_host_map is not a map; not imported.");
    lighthouses.push(...this.textsOf("lighthouse.hosts"));
    relays.push(...this.textsOf("relay.relays"));
    this.#readRoutes();
    this.#requireCipher();
  }

  textsOf(path: string): Statement[] {
    const value = this.#value(path);
    return value === undefined ? [] : this.#texts(value, path);
  }

  /** A flag as the engine reads it, which makes a text of every value. Undefined if it is not set, or is neither true nor false. */
  flagAt(path: string): (Statement & { value: boolean }) | undefined {
    const [statement] = this.textsOf(path);
    if (statement === undefined) return undefined;
    const text = statement.text.toLowerCase();
    if (["true", "1", "t", "y", "yes"].includes(text)) return { ...statement, value: true };
    if (["false", "0", "f", "n", "no"].includes(text)) return { ...statement, value: false };
    this.#found.notes.push(
      `${statement.at}: ${path} ${quoted(statement.text)} is neither true nor false; not imported.`,
    );
    return undefined;
  }

  /** The value at a path such as `pki.cert`. Undefined for null, and where nothing is. */
  #value(path: string): Placed | undefined {
    let value: Placed | undefined = this.#root;
    for (const key of path.split(".")) value = value?.kind === "map" ? value.entries.get(key) : undefined;
    return value?.kind === "leaf" && value.isNull ? undefined : value;
  }

  #at(line: number): string {
    return `${this.file}:${line}`;
  }

  #note(line: number, sentence: string): void {
    this.#found.notes.push(`${this.#at(line)}: ${sentence}`);
  }

  /** The texts of a list, or one text: the engine takes both in some places. */
  #texts(value: Placed, path: string): Statement[] {
    const items = value.kind === "list" ? value.items : [value];
    return items.flatMap((item) => {
      const text = item.kind === "leaf" ? item.text.trim() : "";
      if (text !== "") return [{ text, at: this.#at(item.line) }];
      this.#note(item.line, `${path} has an entry that is empty or not a text; not imported.`);
      return [];
    });
  }

  /** The fingerprints of a blocklist. Throws for a wrong one: passing it over would make a revoked host active. */
  #blockedIn(path: string): string[] {
    const value = this.#value(path);
    if (value === undefined) return [];
    const items = value.kind === "list" ? value.items : [value];
    return items.flatMap((item) => {
      if (item.kind === "leaf" && item.text.trim() === "") {
        this.#note(item.line, `${path} has an empty entry, which blocks nothing.`);
        return [];
      }
      const text = item.kind === "leaf" ? item.text : "";
      const print = text.replace(/[\s:]/g, "").toLowerCase();
      if (!/^[0-9a-f]{64}$/.test(print)) {
        throw new AppError(
          "bad_configuration",
          `${this.#at(item.line)}: ${quoted(text)} in ${path} is not a fingerprint of 64 hexadecimal digits`,
          {
            hint: "Correct it or remove it, so that no host that you have revoked becomes a node. `nebula-cert print` shows fingerprints.",
          },
        );
      }
      // Engines read a list of lower-case digits without colons.
      if (print !== text || value.kind !== "list")
        this.#note(item.line, `${print} in ${path} is not written as engines need it; it is blocked here.`);
      return [print];
    });
  }

  #readRoutes(): void {
    const path = "tun.unsafe_routes";
    const value = this.#value(path);
    if (value === undefined) return;
    if (value.kind !== "list") return this.#note(value.line, `${path} is not a list; not imported.`);
    for (const item of value.items) {
      const field = (name: string) => (item.kind === "map" ? item.entries.get(name) : undefined);
      const route = field("route");
      const text = route?.kind === "leaf" ? route.text : "";
      const via = this.#gateways(field("via"));
      if (text === "" || via.length === 0) {
        this.#note(item.line, `An entry of ${path} has no route or no via; not imported.`);
        continue;
      }
      const install = field("install");
      if (install?.kind === "leaf" && /^(false|0|f|n|no)$/i.test(install.text)) {
        this.#note(item.line, `The route ${quoted(text)} is not installed by this machine; not imported.`);
        continue;
      }
      for (const each of via) this.#found.routes.push({ text, via: each, at: this.#at(item.line) });
      const extra = ["mtu", "metric"].filter((name) => field(name) !== undefined);
      if (extra.length > 0)
        this.#note(item.line, `${extra.join(" and ")} of the route ${quoted(text)}: not imported.`);
    }
  }

  /** The gateways of `via`: one address, or a list of gateways with weights. */
  #gateways(via: Placed | undefined): string[] {
    if (via === undefined) return [];
    return (via.kind === "list" ? via.items : [via]).flatMap((item) => {
      const gateway = item.kind === "map" ? item.entries.get("gateway") : item;
      return gateway?.kind === "leaf" && gateway.text !== "" ? [gateway.text] : [];
    });
  }

  #requireCipher(): void {
    for (const { text, at } of this.textsOf("cipher")) {
      if (text === "aes") continue;
      throw new AppError(
        "bad_configuration",
        `${at}: the network uses the cipher ${quoted(text)}, but nodes here use aes: the two cannot talk to each other`,
        { hint: "Change `cipher` to aes on all machines, restart their engines, and import then." },
      );
    }
  }
}

/**
 * An engine merges the files of a directory with those below it. A file without `pki.cert` belongs to the only file with one
 * in its directory, else in the nearest directory above, else below. Otherwise its machine is not known.
 */
function machinesOf(readings: readonly Reading[]): Reading[][] {
  /** The files with `pki.cert`. */
  const owners = new Set(readings.filter((each) => each.textsOf("pki.cert").length > 0));
  const inside = Map.groupBy(owners.values(), ({ file }) => dirname(file));
  /** Of each directory, at most two files with `pki.cert` in or below it: two tell that none is the only one. */
  const below = new Map<string, Reading[]>();
  for (const owner of owners)
    for (const directory of above(owner.file))
      below.set(directory, [...(below.get(directory) ?? []), owner].slice(0, 2));
  /** The file with `pki.cert` of the same machine; the file itself if that is not known. */
  const ownerOf = (reading: Reading): Reading => {
    if (owners.has(reading)) return reading;
    const nearest = above(reading.file).find((directory) => inside.has(directory));
    const found = nearest === undefined ? below.get(dirname(reading.file)) : inside.get(nearest);
    const [only, second] = found ?? [];
    return only === undefined || second !== undefined ? reading : only;
  };
  return [...Map.groupBy(readings, ownerOf).values()];
}

/** The directories of a file, from the nearest to the top, which is ".". `file`: relative to the directory that is imported. */
export function above(file: string): string[] {
  const nearest = dirname(file);
  return nearest === "." ? ["."] : [nearest, ...above(nearest)];
}

/** The machine of these files. If several files have a setting, the value of the last file holds. */
function mergeFiles(files: readonly Reading[]): Machine {
  const last = <T>(read: (each: Reading) => T | undefined): T | undefined =>
    files.map(read).findLast((each) => each !== undefined);
  return {
    cert: last((each) => {
      const [statement] = each.textsOf("pki.cert");
      return statement === undefined ? undefined : { ...statement, file: each.file };
    }),
    amLighthouse: last((each) => each.flagAt("lighthouse.am_lighthouse")),
    amRelay: last((each) => each.flagAt("relay.am_relay")),
    advertised: files.flatMap((each) => each.textsOf("lighthouse.advertise_addrs")),
  };
}

/** A text of a file, in a sentence. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
