// Counts in the kernel (Linux, nftables, connection tracking) the flows on an overlay's interface: by peer, protocol and
// destination port. The table only counts: it accepts and drops nothing, and no packet leaves the kernel.
//
// Sets come in generations: `in4-7` is the 7th, of what peers began by IPv4. To collect, one transaction points the rules at the
// sets of a new generation. The former sets stay until the caller has stored what is in them, so a process that is killed in between
// loses nothing and counts nothing twice. The name of a generation's counter, `rest-7-1234-DIGEST`, says that it began 1234 s after
// boot, by rules with this digest. It counts the new flows that found no room in the sets.

import * as v from "valibot";
import { discardPort, type System } from "../../base/system.ts";
import { readTable, runScript, tableOf } from "../nftables.ts";
import { sha256Hex } from "../../base/sha256.ts";

type UsedSystem = Pick<System, "run" | "platform">;

/** Flows of one peer, protocol and port. `flows`: that began; 0 if only older ones went on. `answered`: how many got an answer. */
export type CountedFlows = {
  peer: string;
  incoming: boolean;
  protocol: "tcp" | "udp" | "icmp" | "other";
  port: number;
  flows: number;
  answered: number;
};

/** `number` rises within a boot. `from`: seconds after boot. */
export type Generation = { number: number; from: number };
/** As the kernel has it. `version`: the digest of its rules. */
export type RuledGeneration = Generation & { version: string };

/** How many elements a set has room for. What finds no room is counted without peer and port. */
const setSize = 8192;
const families = [
  { family: 4, type: "ipv4_addr", header: "ip" },
  { family: 6, type: "ipv6_addr", header: "ip6" },
] as const;
const sides = ["in", "out"] as const;

/** What the rules depend on. `networks`: of the overlay; flows that leave for other destinations are not counted. */
export type FlowPlace = { slug: string; device: string; networks: readonly string[] };

const setName = (side: string, family: number, { number }: Generation) => `${side}${family}-${number}`;
const counterName = ({ number, from, version }: RuledGeneration) =>
  `rest-${number}-${Math.floor(from)}-${version}`;

/**
 * A connection is counted once and answered once, however often its first packets are repeated: two bits of its label say so.
 * They come from the name of the organization, because another one on this machine may count the same connection.
 */
function labelsOf(slug: string): { counted: number; answered: number } {
  // Of the 128 bits of a label, one of 64 pairs.
  const counted = 2 * ((new Bun.CryptoHasher("sha256").update(slug).digest()[0] ?? 0) % 64);
  return { counted, answered: counted + 1 };
}

/** An element is a flow's peer, protocol, port, direction and state: so new flows, answers and flows that go on are counted apart. */
const setsOf = (generation: Generation): string[] =>
  sides.flatMap((side) =>
    families.map(
      ({ family, type }) =>
        `set ${setName(side, family, generation)} { type ${type} . inet_proto . inet_service . ct_dir . ct_state; ` +
        `size ${setSize}; flags dynamic; counter; }`,
    ),
  );

/** The rules of each chain. `peer`: whether the peer's address is the packet's source or destination. */
function rulesOf(
  { slug, device, networks }: FlowPlace,
  generation: RuledGeneration,
): Record<string, string[]> {
  const { counted, answered } = labelsOf(slug);
  const update = (side: string, peer: "saddr" | "daddr", port: "sport" | "dport") =>
    families.flatMap(({ family, header }) =>
      // In an ICMP packet type and code have the place of the source port. They are no port: the reader drops them.
      [
        { match: "meta l4proto { 1, 58 }", portField: "sport" },
        { match: "meta l4proto != { 1, 58 }", portField: port },
      ].map(
        ({ match, portField }) =>
          `${match} update @${setName(side, family, generation)} ` +
          `{ ${header} ${peer} . meta l4proto . th ${portField} . ct direction . ct state } return`,
      ),
    );
  /** Leaves the chain for a connection that has the label already. */
  const once = (label: number) => [`ct label ${label} return`, `ct label set ${label}`];
  const newFlow = (side: "in" | "out", peer: "saddr" | "daddr") => [
    // The agent itself wakes the engine by empty packets (lighthouse-packets.ts): a header of 8 bytes and nothing else.
    `udp dport ${discardPort} udp length 8 return`,
    ...once(counted),
    ...update(side, peer, "dport"),
    // Only a flow that found no room comes here: an update that succeeds leaves the chain.
    `counter name ${counterName(generation)}`,
  ];
  const firstAnswer = (side: "in" | "out", peer: "saddr" | "daddr") => [
    // A refused connection (RST) is not answered.
    "tcp flags & rst == rst return",
    ...once(answered),
    ...update(side, peer, "sport"),
  ];
  /** For packets to the overlay. `outside-in`: a flow that this machine, or a host behind it, begins into the overlay. */
  const toOverlay = families.flatMap(({ family, header }) => {
    const own = networks.filter((each) => each.includes(":") === (family === 6));
    return own.length === 0 ? [] : [`${header} daddr { ${own.join(", ")} } jump outside-in`];
  });
  return {
    before: [
      `iifname "${device}" ct state new jump new-in`,
      `iifname "${device}" ct state established ct direction original jump live-in`,
      `iifname "${device}" ct state established ct direction reply ct label ${counted} jump reply-out`,
    ],
    after: [
      `oifname "${device}" ct state established ct direction reply ct label ${counted} jump reply-in`,
      ...toOverlay.map((rule) => `oifname "${device}" ct direction original ${rule}`),
    ],
    "outside-in": ["ct state new jump new-out", "ct state established jump live-out"],
    "new-in": newFlow("in", "saddr"),
    "new-out": newFlow("out", "daddr"),
    "live-in": update("in", "saddr", "dport"),
    "live-out": update("out", "daddr", "dport"),
    "reply-in": firstAnswer("in", "daddr"),
    "reply-out": firstAnswer("out", "saddr"),
  };
}

/** Of the chains that the kernel enters; rules jump to the others. */
const hooks: Record<string, string> = {
  // `before` runs after connection tracking and before addresses are translated, `after` once they are.
  before: "type filter hook prerouting priority -140; policy accept;",
  after: "type filter hook postrouting priority 150; policy accept;",
};

/** The digest of the rules without their generation. */
const versionOf = (place: FlowPlace): string =>
  sha256Hex(JSON.stringify(rulesOf(place, { number: 0, from: 0, version: "" }))).slice(0, 12);

/** Whether the rules in force are those of this place. `newest`: the generation that is being counted. */
export const isInForce = (newest: RuledGeneration | undefined, place: FlowPlace): boolean =>
  newest?.version === versionOf(place);

/**
 * From now on flows are counted in this generation: makes the table, or points its rules there. Undefined without an error, or
 * why it cannot be. Does not reject.
 */
export function beginGeneration(
  place: FlowPlace,
  generation: Generation,
  system: UsedSystem,
): Promise<string | undefined> {
  const table = `table inet ${tableOf("flows", place.slug)}`;
  const begun = { ...generation, version: versionOf(place) };
  const chains = Object.entries(rulesOf(place, begun)).flatMap(([name, rules]) => [
    `chain ${name} {`,
    hooks[name] ?? "",
    ...rules,
    "}",
  ]);
  // A flush removes the rules of the former generation, and leaves its sets.
  const script = [`${table} { }`, `flush ${table}`, `${table} {`, `counter ${counterName(begun)} { }`];
  return runScript([...script, ...setsOf(begun), ...chains, "}", ""].join("\n"), system);
}

/** Removes what former generations counted. Does not reject. */
export function dropGenerations(
  slug: string,
  generations: readonly RuledGeneration[],
  system: UsedSystem,
): Promise<string | undefined> {
  const table = `inet ${tableOf("flows", slug)}`;
  const lines = generations.flatMap((each) => [
    `delete counter ${table} ${counterName(each)}`,
    ...sides.flatMap((side) =>
      families.map(({ family }) => `delete set ${table} ${setName(side, family, each)}`),
    ),
  ]);
  return runScript(`${lines.join("\n")}\n`, system);
}

const text = v.pipe(v.string(), v.maxLength(64));
const packets = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER));
const concat = v.pipe(v.array(v.union([text, v.number()])), v.maxLength(5));
const Element = v.object({
  elem: v.object({ val: v.object({ concat }), counter: v.object({ packets }) }),
});
const Listed = v.object({
  nftables: v.pipe(
    v.array(
      v.object({
        counter: v.optional(v.object({ name: text, packets })),
        set: v.optional(
          v.object({ name: text, elem: v.optional(v.pipe(v.array(Element), v.maxLength(setSize)), []) }),
        ),
      }),
    ),
    v.maxLength(10_000),
  ),
});
type Listed = v.InferOutput<typeof Listed>["nftables"];

/** Undefined if there is no table. */
async function list(slug: string, what: "names" | "table", system: UsedSystem): Promise<Listed | undefined> {
  const listed = await readTable("flows", slug, system, what);
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Listed), listed);
  return parsed.success ? parsed.output.nftables : undefined;
}

/** The generations in the kernel, the oldest first. Does not reject. */
export async function readGenerations(slug: string, system: UsedSystem): Promise<RuledGeneration[]> {
  const listed = (await list(slug, "names", system)) ?? [];
  return listed
    .flatMap(({ counter }) => {
      const [, number, from, version] = counterForm.exec(counter?.name ?? "") ?? [];
      return version === undefined ? [] : [{ number: Number(number), from: Number(from), version }];
    })
    .sort((a, b) => a.number - b.number);
}

const counterForm = /^rest-(\d+)-(\d+)-([0-9a-f]{12})$/;

/**
 * What was counted in the generations with a number above `after`, up to `upTo`. `rest`: new flows that found no room. Undefined if
 * nft does not tell. Does not reject.
 */
export async function readFlows(
  slug: string,
  { after, upTo }: { after: number; upTo: number },
  system: UsedSystem,
): Promise<{ flows: CountedFlows[]; rest: number } | undefined> {
  const listed = await list(slug, "table", system);
  if (listed === undefined) return undefined;
  const found = new Map<string, CountedFlows>();
  let rest = 0;
  for (const { counter, set } of listed) {
    const [, side, number] = /^(rest|in|out)[46]?-(\d+)/.exec(counter?.name ?? set?.name ?? "") ?? [];
    if (side === undefined || Number(number) <= after || Number(number) > upTo) continue;
    rest += counter?.packets ?? 0;
    for (const { elem } of set?.elem ?? []) addElement(found, side === "in", elem);
  }
  return { flows: [...found.values()], rest };
}

function addElement(
  found: Map<string, CountedFlows>,
  incoming: boolean,
  { val, counter }: v.InferOutput<typeof Element>["elem"],
): void {
  const [peer = "", protocolWord = "", portWord = 0, direction, state = ""] = val.concat;
  const protocol = protocolOf(protocolWord);
  const port = protocol === "tcp" || protocol === "udp" ? Number(portWord) : 0;
  const key = `${peer} ${incoming} ${protocol} ${port}`;
  const flows = found.get(key) ?? { peer: String(peer), incoming, protocol, port, flows: 0, answered: 0 };
  if (direction === "reply") flows.answered += counter.packets;
  // nft writes the state as a word, or as its bit.
  else if (["new", 8].includes(state)) flows.flows += counter.packets;
  found.set(key, flows);
}

/** nft writes a protocol as a word, or as its number. */
function protocolOf(word: string | number): CountedFlows["protocol"] {
  if (word === "tcp" || word === 6) return "tcp";
  if (word === "udp" || word === 17) return "udp";
  return ["icmp", 1, "ipv6-icmp", "icmpv6", 58].includes(word) ? "icmp" : "other";
}
