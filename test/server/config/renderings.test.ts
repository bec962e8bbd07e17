// The cache of configurations: what shares an entry, what does not, and its bounds.

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { makeBoundedCache } from "../../../src/server/config/bounded-cache.ts";
import {
  kindOf,
  makeConfigView,
  type ConfigNode,
  type ConfigSource,
} from "../../../src/server/config/config-view.ts";
import { makeRenderings } from "../../../src/server/config/renderings.ts";
import { renderConfig } from "../../support/config-source.ts";

const node = (fields: Partial<ConfigNode> = {}): ConfigNode => ({
  id: 7,
  name: "n7",
  ip: "10.0.0.7",
  ip6: null,
  groups: [],
  ownerId: null,
  ownerGroups: [],
  isLighthouse: false,
  isRelay: false,
  publicIp: null,
  externalPort: null,
  listenPort: null,
  subnets: [],
  routeOptions: {},
  exitGroups: [],
  configOverrides: {},
  overlayVersion: "1.10.3",
  platform: "linux-x64",
  pinsDefaults: false,
  ...fields,
});
const source = (fields: Partial<ConfigSource> = {}): ConfigSource => ({
  slug: "acme",
  networks: ["10.0.0.0/16"],
  aliveInterval: null,
  overrides: {},
  certificateVersion: 1,
  rules: [],
  nodeNames: new Map(),
  hubs: [],
  blocklist: [],
  flowRechecks: 0,
  pausedRelays: [],
  ...fields,
});
const rule = {
  id: 1,
  direction: "inbound",
  protocol: "tcp",
  ports: "22",
  peer: { any: true },
  target: { any: true },
  description: "",
} as const;

function counted(maxBytes?: number) {
  const counts = { rendered: 0 };
  const renderings = makeRenderings({ rendered: () => void counts.rendered++ }, undefined, maxBytes);
  return { counts, renderings };
}

const ids = fc.integer({ min: 1, max: 4 });
const groups = fc.subarray(["a", "b", "c"]);
const target = fc.oneof(
  fc.constant({ any: true } as const),
  fc.record({ node: ids }),
  fc.record({ group: fc.constantFrom("a", "b", "c") }),
);

test("a node gets what rendering for it alone gives, whichever nodes asked before", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(target, { maxLength: 4 }),
      fc.uniqueArray(ids, { maxLength: 3 }),
      fc.array(
        fc.record({
          id: ids,
          groups,
          isRelay: fc.boolean(),
          overlayVersion: fc.constantFrom("1.6.1", "1.10.3"),
        }),
        { minLength: 2, maxLength: 8 },
      ),
      async (targets, hubIds, asking) => {
        const hubs = hubIds.map((id) => ({
          ...node({ id, ip: `10.0.0.${id}`, isLighthouse: true, publicIp: "192.0.2.1" }),
          tcp: null,
        }));
        const rules = targets.map((each, at) => ({
          ...rule,
          id: at + 1,
          ports: String(at + 1),
          target: each,
        }));
        const view = makeConfigView(source({ rules, hubs }));
        const { renderings } = counted();
        for (const fields of asking) {
          const own = node({ ...fields, name: `n${fields.id}`, ip: `10.0.0.${fields.id}` });
          const { text, digest } = await renderings.of(view, own);
          const alone = renderConfig(view, own);
          expect([await text(), digest]).toEqual([alone.text, alone.digest]);
        }
      },
    ),
  );
});

test("nodes of one kind share one rendering; a rule that names a node or its group parts them", async () => {
  const { counts, renderings } = counted();
  const ask = async (view: ReturnType<typeof makeConfigView>, own: ConfigNode) =>
    (await renderings.of(view, own)).text();
  const plain = makeConfigView(source({ rules: [rule] }));
  for (let id = 1; id <= 100; id++) await ask(plain, node({ id, name: `n${id}`, groups: [`g${id}`] }));
  expect(counts.rendered).toBe(1);
  const named = makeConfigView(source({ rules: [{ ...rule, target: { node: 3 } }] }));
  expect(await ask(named, node({ id: 3 }))).not.toBe(await ask(named, node({ id: 4 })));
  const grouped = makeConfigView(source({ rules: [{ ...rule, target: { group: "web" } }] }));
  expect(await ask(grouped, node({ groups: ["web"] }))).not.toBe(await ask(grouped, node()));
  expect(kindOf(grouped, node({ groups: ["z", "web"] }))).toEqual(kindOf(grouped, node({ groups: ["web"] })));
});

test("a changed view is rendered anew at once", async () => {
  const { counts, renderings } = counted();
  for (const ports of ["22", "23", "22"]) {
    const { text } = await renderings.of(makeConfigView(source({ rules: [{ ...rule, ports }] })), node());
    expect(await text()).toContain(`port: "${ports}"`);
  }
  expect(counts.rendered).toBe(2);
});

test("only work that renders waits for a turn", async () => {
  const { renderings } = counted();
  const view = makeConfigView(source());
  let turns = 0;
  const inTurn = <T>(work: () => Promise<T>) => {
    turns++;
    return work();
  };
  for (let at = 0; at < 3; at++) await renderings.of(view, node(), inTurn);
  expect(turns).toBe(1);
});

test("texts beyond the bound are rendered again, and are right", async () => {
  const { counts, renderings } = counted(10);
  const view = makeConfigView(source({ rules: [rule] }));
  const { text } = await renderings.of(view, node());
  expect(await text()).toBe(renderConfig(view, node()).text);
  expect(counts.rendered).toBe(2);
});

test("a bounded cache never holds more than its size, and forgets what was used longest ago", () => {
  const cache = makeBoundedCache<number>(10);
  cache.set("a", 1, 4);
  cache.set("b", 2, 4);
  expect(cache.get("a")).toBe(1);
  cache.set("c", 3, 4);
  expect([cache.get("a"), cache.get("b"), cache.get("c"), cache.size()]).toEqual([1, undefined, 3, 8]);
  cache.set("a", 4, 6);
  expect([cache.get("a"), cache.get("c"), cache.size()]).toEqual([4, 3, 10]);
  cache.set("c", 5, 11);
  expect([cache.get("c"), cache.size()]).toEqual([undefined, 6]);
});
