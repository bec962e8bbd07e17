// `bun test/bench/headscale-policies.ts DIR`: imports every policy that a checkout of headscale in DIR holds as test data
// (docs/policy.md names the commit), and compares who reaches whom with the packet filters that are recorded beside them, and
// with those that headscale's own engine computes (headscale-filters.go, built in DIR with modules of the Go proxy): an
// import never permits more, and the same if it notes nothing about packets.

import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { parseAddress, parseNetwork, networkContains } from "../../src/base/ip.ts";
import { atOnce } from "../../src/server/http/heavy-work.ts";
import { plainJson } from "../../src/server/policy-files/hujson.ts";
import { importPolicy, type Imported } from "../../src/server/policy-files/import-policy.ts";
import type { Member } from "../../src/server/policy/firewall.ts";
import { ownerGroup, ownerGroupIn } from "../../src/protocol/users-groups.ts";
import { parsePolicy } from "../../src/server/policy/read-policy.ts";
import { isNothing, showAccess, subtract, type Access } from "../../src/server/policy/packets.ts";
import { makeReach } from "../../src/server/policy/reach.ts";
import { resolvePolicy } from "../../src/server/policy/resolve.ts";
import { withToolchain } from "../support/go-toolchain.ts";
import { print } from "./measure.ts";

const Filter = v.array(
  v.looseObject({
    SrcIPs: v.optional(v.nullable(v.array(v.string())), []),
    IPProto: v.optional(v.nullable(v.array(v.number()))),
    DstPorts: v.optional(
      v.nullable(
        v.array(
          v.looseObject({ IP: v.string(), Ports: v.looseObject({ First: v.number(), Last: v.number() }) }),
        ),
      ),
    ),
  }),
);
const Captured = v.looseObject({
  input: v.looseObject({ full_policy: v.unknown(), api_response_code: v.number() }),
  topology: v.looseObject({
    users: v.array(v.looseObject({ name: v.string(), email: v.string() })),
    nodes: v.record(
      v.string(),
      v.looseObject({
        tags: v.array(v.string()),
        ipv4: v.string(),
        ipv6: v.string(),
        user: v.optional(v.string()),
      }),
    ),
  }),
  captures: v.record(
    v.string(),
    v.looseObject({ packet_filter_rules: v.optional(v.nullable(Filter)), netmap: v.optional(v.unknown()) }),
  ),
});
type Rules = v.InferOutput<typeof Filter>;

/** Notes that concern who is in a group, and not which packets pass. */
const harmless =
  /^(\d+ members? of|the owners of|ssh|sshTests|nodeAttrs|autoApprovers|postures|the test|randomize)/;

function holds(text: string, addresses: readonly string[]): boolean {
  if (text === "*") return true;
  return addresses.some((each) => {
    const address = parseAddress(each);
    if (address === undefined) return false;
    const [first = "", last] = text.split("-").map((part) => parseAddress(part));
    if (typeof first !== "string" && last !== undefined) {
      return first.family === address.family && address.value >= first.value && address.value <= last.value;
    }
    const network = parseNetwork(text.includes("/") ? text : `${text}/${text.includes(":") ? 128 : 32}`);
    return network !== undefined && networkContains(network, address);
  });
}

/** What the recorded filter of the receiver passes. */
function recorded(rules: Rules, from: readonly string[], to: readonly string[]): Access {
  const access = { tcp: [] as [number, number][], udp: [] as [number, number][], icmp: false };
  for (const { SrcIPs, IPProto, DstPorts } of rules) {
    if (!(SrcIPs ?? []).some((each) => holds(each, from))) continue;
    const protocols = IPProto ?? [1, 6, 17, 58];
    for (const { IP, Ports } of DstPorts ?? []) {
      if (!holds(IP, to)) continue;
      const range: [number, number] = [Math.max(1, Ports.First), Ports.Last];
      if (protocols.includes(6)) access.tcp.push(range);
      if (protocols.includes(17)) access.udp.push(range);
      if (protocols.includes(1)) access.icmp = true;
    }
  }
  return { ...access, tcp: merge(access.tcp), udp: merge(access.udp) };
}

function merge(ranges: [number, number][]): [number, number][] {
  const found: [number, number][] = [];
  for (const [first, last] of ranges.sort((a, b) => a[0] - b[0])) {
    const end = found.at(-1);
    if (end !== undefined && first <= end[1] + 1) end[1] = Math.max(end[1], last);
    else found.push([first, last]);
  }
  return found;
}

/** Pairs of nodes. */
let compared = 0;
let permitted = 0;

type Outcome =
  | "equal"
  | "less, as noted"
  | "MORE"
  | "less, NOT noted"
  | "refused"
  | "tests fail"
  | "refused there too"
  | "refused there alone";

/** `computed`: by headscale, instead of what is recorded. Undefined: headscale refuses the policy. */
type Source = { filters: Record<string, Rules> | undefined } | "recorded";

function compare(
  text: string,
  source: Source,
): { outcome: Outcome; notes: Imported["notes"]; detail: string } {
  const { input, topology, captures } = v.parse(Captured, JSON.parse(plainJson(text)));
  const policy =
    typeof input.full_policy === "string" ? input.full_policy : JSON.stringify(input.full_policy);
  const isRefused = source === "recorded" ? input.api_response_code !== 200 : source.filters === undefined;
  let imported: Imported;
  try {
    imported = atOnce(importPolicy(policy));
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    const isTest = detail.includes("imported tests");
    const outcome = isRefused ? "refused there too" : isTest ? "tests fail" : "refused";
    return { outcome, notes: [], detail };
  }
  if (isRefused) {
    return { outcome: "refused there alone", notes: imported.notes, detail: "" };
  }
  const original: { groups?: Record<string, string[]> } = JSON.parse(plainJson(policy));
  const emails = new Map(topology.users.map(({ name, email }) => [name, email]));
  const known = atOnce(parsePolicy(imported.policy));
  const members = Object.entries(topology.nodes).map(([name, node], at): Member => {
    const email = emails.get(node.user ?? "") ?? "";
    const own = Object.entries(original.groups ?? {}).filter(
      ([, users]) => email !== "" && users.includes(email),
    );
    const words = [...node.tags, ...own.map(([word]) => word)];
    const groups = words
      .map((word) => word.replace(/^(tag|group):/, ""))
      .filter((word) => known.file.groups?.[word] !== undefined);
    const owner = topology.users.findIndex((each) => each.name === node.user);
    // A node with tags has no user there.
    if (owner !== -1 && node.tags.length === 0) groups.push(ownerGroup(owner + 1));
    return { id: at + 1, name, ip: node.ipv4, ip6: node.ipv6, groups };
  });
  const { rules = [] } = atOnce(
    resolvePolicy(known, { nodes: new Map(), groups: new Set(), users: new Map(), providers: [] }),
  );
  const reach = atOnce(
    makeReach({ rules: rules.map((rule, at) => ({ ...rule, id: at + 1, description: "" })), members }),
  );
  const classOf = (member: Member) => reach.classes.find((each) => each.members.includes(member));
  let outcome: Outcome = "equal";
  let detail = "";
  for (const to of members) {
    const filter = source === "recorded" ? captures[to.name]?.packet_filter_rules : source.filters?.[to.name];
    if (filter === undefined) continue;
    for (const from of members) {
      compared++;
      const [a, b] = [classOf(from), classOf(to)];
      if (from === to || a === undefined || b === undefined) continue;
      const owner = ownerGroupIn(from.groups);
      const isOwn = owner !== undefined && to.groups.includes(owner);
      const ours = reach.access(a, b, isOwn ? "same" : "different");
      const theirs = recorded(filter ?? [], [from.ip, from.ip6 ?? ""], [to.ip, to.ip6 ?? ""]);
      if (!isNothing(ours)) permitted++;
      const [more, less] = [subtract(ours, theirs), subtract(theirs, ours)];
      if (!isNothing(more))
        return {
          outcome: "MORE",
          notes: imported.notes,
          detail: `${from.name} to ${to.name}: ${showAccess(more).join(", ")}`,
        };
      if (isNothing(less)) continue;
      outcome = imported.notes.some(({ what }) => !harmless.test(what))
        ? "less, as noted"
        : "less, NOT noted";
      detail = `${from.name} to ${to.name}: ${showAccess(less).join(", ")}`;
    }
  }
  return { outcome, notes: imported.notes, detail };
}

/** The examples of the documentation are parts of policies, some with `...` in them. */
function documented(directory: string): void {
  for (const page of ["policy", "routes"]) {
    const text = readFileSync(join(directory, `docs/ref/${page}.md`), "utf8");
    for (const [, block = ""] of text.matchAll(/```json[^\n]*\n([^]*?)```/g)) {
      try {
        const { rules, notes } = atOnce(importPolicy(block));
        print(`docs/ref/${page}.md: ${rules} rules, ${notes.length} notes`);
      } catch (error) {
        print(`docs/ref/${page}.md: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }
}

const Computed = v.object({
  file: v.string(),
  filters: v.optional(v.record(v.string(), v.nullable(Filter))),
});

/** What headscale's own engine makes of each file. */
function compute(directory: string, files: readonly string[]): Map<string, Source> {
  const run = withToolchain(directory);
  const command = join(directory, "cmd/overlay-agent-filters");
  mkdirSync(command, { recursive: true });
  cpSync(join(import.meta.dir, "headscale-filters.go"), join(command, "main.go"));
  try {
    run(["go", "build", "-o", join(command, "filters"), "./cmd/overlay-agent-filters"], directory);
    const lines = run([join(command, "filters"), ...files], directory)
      .trim()
      .split("\n");
    return new Map(
      lines.map((line): [string, Source] => {
        const { file, filters } = v.parse(Computed, JSON.parse(line));
        const known =
          filters && Object.fromEntries(Object.entries(filters).map(([node, rules]) => [node, rules ?? []]));
        return [file, { filters: known }];
      }),
    );
  } finally {
    rmSync(command, { recursive: true });
  }
}

const bad: readonly Outcome[] = ["MORE", "less, NOT noted", "refused", "tests fail"];

if (import.meta.main) {
  const directory = process.argv[2] ?? "";
  const kinds = ["acl_results", "grant_results", "routes_results", "policytest_results"];
  const filesOf = (kind: string) =>
    [...new Bun.Glob(`hscontrol/policy/v2/testdata/${kind}/*.hujson`).scanSync(directory)].sort();
  const computed = compute(directory, kinds.flatMap(filesOf));
  const reasons = new Map<string, number>();
  for (const which of ["recorded", "computed"]) {
    [compared, permitted] = [0, 0];
    for (const kind of kinds) {
      const outcomes = new Map<Outcome, string[]>();
      for (const file of filesOf(kind)) {
        const source = which === "recorded" ? which : (computed.get(file) ?? { filters: undefined });
        const text = readFileSync(join(directory, file), "utf8");
        const { outcome, notes, detail } = compare(text, source);
        outcomes.set(outcome, [...(outcomes.get(outcome) ?? []), `${file.split("/").at(-1)} ${detail}`]);
        if (which === "computed") continue;
        for (const reason of new Set(notes.map((each) => each.reason)))
          reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
      }
      const counts = [...outcomes].map(([outcome, files]) => `${outcome} ${files.length}`);
      print(`${which} ${kind}: ${counts.join(", ")}`);
      for (const outcome of bad)
        for (const line of outcomes.get(outcome) ?? []) print(`  ${outcome}: ${line}`);
    }
    print(
      `${which}: ${compared} pairs of nodes compared, of which ${permitted} reach something by the import`,
    );
  }
  documented(directory);
  for (const [reason, count] of [...reasons].sort((a, b) => b[1] - a[1]))
    print(`${count} policies: ${reason}`);
}
