// The time machine against copies of the state that were kept at the time: random histories of rules, groups, nodes,
// certificates and revocations, asked at random moments.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { PastReport } from "../../../src/api/history/past.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeRandom } from "../../support/random.ts";
import { makeTestServer, onPostgres, type TestServer } from "../../support/server.ts";
import { inFull } from "../../support/soak.ts";

const histories = inFull ? 100 : onPostgres ? 2 : 10;
const moments = 100;
const steps = 30;

type Node = { id: number; name: string; ip_address: string; groups: string[]; state: string };
type Side = { any?: boolean; group?: string; node?: number; cidr?: string };
type Rule = { id: number; direction: string; protocol: string; ports: string; peer: Side; target: Side };
/** What the API told at a time. */
type Kept = {
  at: number;
  policy: string | null;
  nodes: Node[];
  rules: Rule[];
  certificates: Map<number, string[]>;
};

const Answer = v.object({ report: v.string(), signature: v.string() });

function makeHistory(server: TestServer, org: Organization, token: string, random: () => number) {
  const send = (method: string, path: string, body?: unknown) =>
    server.send(method, `/api/org/${org.slug}/${path}`, { token, body });
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
  const groups = ["web", "db", "ops"];
  const ports = ["any", "22", "443", "5432", "8000-8100"];
  let names = 0;
  const list = async <T>(path: string): Promise<T[]> => (await send("GET", path)).json as T[];
  const nodes = () => list<Node>("nodes/?page_size=100");
  const side = async (): Promise<Side> => {
    const node = pick(await nodes());
    const chosen = random();
    if (chosen < 0.2 || node === undefined) return { any: true };
    return chosen < 0.7 ? { group: pick(groups) ?? "web" } : { node: node.id };
  };
  const rule = async () => ({
    direction: random() < 0.8 ? "inbound" : "outbound",
    protocol: pick(["any", "tcp", "udp"]),
    ports: pick(ports),
    peer: random() < 0.1 ? { cidr: "10.77.0.0/30" } : await side(),
    target: await side(),
  });
  const some = () => groups.filter(() => random() < 0.4);
  const register = async () => {
    const { id } = await registerNode(server, org, `node${names++}`);
    return send("PATCH", `nodes/${id}/`, { groups: some() });
  };
  const work: (() => Promise<unknown>)[] = [
    register,
    async () => send("POST", "firewall_rules/", await rule()),
    async () => send("POST", "firewall_rules/", await rule()),
    async () =>
      send("PATCH", `firewall_rules/${pick(await list<Rule>("firewall_rules/"))?.id}/`, {
        ports: "any",
        protocol: "any",
      }),
    async () => send("DELETE", `firewall_rules/${pick(await list<Rule>("firewall_rules/"))?.id}/`),
    async () => send("PATCH", `nodes/${pick(await nodes())?.id}/`, { groups: some() }),
    async () => send("PATCH", `nodes/${pick(await nodes())?.id}/`, { name: `node${names++}` }),
    async () => send("POST", `nodes/${pick(await nodes())?.id}/renew_cert/`, {}),
    async () => send("DELETE", `nodes/${pick(await nodes())?.id}/`),
    async () => send("POST", `nodes/${pick(await list<Node>("nodes/?revoked=true"))?.id}/restore/`, {}),
    async () => {
      const made = [
        { direction: "inbound", protocol: "tcp", ports: 443, peer: "group:web", target: "group:db" },
      ];
      return send("POST", "policy/apply/", {
        policy: JSON.stringify({ rules: made }),
        prune: random() < 0.3,
      });
    },
    async () => send("POST", "names/", { name: `alias${names++}`, node: pick(await nodes())?.id }),
  ];
  return {
    /** Begins with some nodes. */
    step: (at: number) => (at < 4 ? register() : pick(work)?.()),
    async keep(): Promise<Kept> {
      const policy = (await send("GET", "policy/")).json as { policy: string; source: string };
      const rows = await server.db.all(
        `SELECT node_id, fingerprint FROM certificates WHERE org_id = $1 AND kind = 'overlay' AND state <> 'blocked'
         ORDER BY id`,
        [org.id],
      );
      const certificates = new Map<number, string[]>();
      for (const { node_id: id, fingerprint } of rows)
        certificates.set(Number(id), [...(certificates.get(Number(id)) ?? []), String(fingerprint)]);
      return {
        at: Date.now(),
        // A file is shown as it was written, with its comments: the log has the state.
        policy: policy.source === "file" ? null : policy.policy,
        nodes: await nodes(),
        rules: await list<Rule>("firewall_rules/?page_size=500"),
        certificates,
      };
    },
    async ask(at: number, more = "") {
      const answer = await send("GET", `policy/past/?at=${new Date(at).toISOString()}${more}`);
      expect([answer.status, answer.text]).toEqual([200, answer.text]);
      return v.parse(PastReport, JSON.parse(v.parse(Answer, answer.json).report));
    },
    pick,
  };
}

/** Whether `tcp/8000-8100` holds the port. */
function holds(shown: string, port: number): boolean {
  const ports = shown.replace("tcp/", "");
  const [low = 0, high = low] = ports === "any" ? [0, 65_535] : ports.split("-").map(Number);
  return port >= low && port <= high;
}

/** Written anew: what the engines do with these rules. */
function isLetThrough(rules: readonly Rule[], from: Node, to: Node, port: number): boolean {
  const within = (ports: string) => {
    const [low = 0, high = low] = ports === "any" ? [0, 65_535] : ports.split("-").map(Number);
    return port >= low && port <= high;
  };
  const meets = (wanted: Side, node: Node) =>
    wanted.any === true ||
    (wanted.group !== undefined && node.groups.includes(wanted.group)) ||
    wanted.node === node.id ||
    (wanted.cidr !== undefined && /^10\.77\.0\.[0-3]$/.test(node.ip_address));
  const has = (direction: string, own: Node, other: Node) =>
    rules.some(
      (rule) =>
        rule.direction === direction &&
        ["any", "tcp"].includes(rule.protocol) &&
        within(rule.ports) &&
        meets(rule.target, own) &&
        meets(rule.peer, other),
    );
  return has("outbound", from, to) && has("inbound", to, from);
}

for (let seed = 1; seed <= histories; seed++) {
  test(`history ${seed}: at ${moments} random moments the log tells what was kept then`, async () => {
    const random = makeRandom(seed);
    await using server = await makeTestServer();
    const tick = () => (server.clock.ms = Date.now());
    tick();
    const org = await server.organization("acme");
    const token = await server.person("ada@example.org");
    await server.join(org, "ada@example.org", "admin");
    const other = await server.organization("other", "10.78.0.0/16");
    await registerNode(server, other, "stranger");
    const history = makeHistory(server, org, token, random);
    const kept: Kept[] = [];
    for (let step = 0; step < steps; step++) {
      tick();
      await history.step(step);
      await Bun.sleep(3);
      kept.push(await history.keep());
      await Bun.sleep(3);
    }
    tick();
    for (let moment = 0; moment < moments; moment++) {
      const then = history.pick(kept);
      if (then === undefined) break;
      const active = then.nodes.filter(({ state }) => state === "active");
      const [from, to] = [history.pick(active), history.pick(active)];
      const port = history.pick([22, 443, 5432, 8050, 9000]) ?? 22;
      if (moment % 3 === 0 || from === undefined || to === undefined || from.id === to.id) {
        const { policy } = await history.ask(then.at);
        if (then.policy === null) expect(policy).toContain("# Written by the control plane");
        else expect(policy).toBe(then.policy);
      } else if (moment % 3 === 1) {
        const { access, doubts } = await history.ask(
          then.at,
          `&from=${from.name}&to=${to.name}&port=${port}`,
        );
        const [found] = access;
        expect(found?.certificates.map(({ fingerprint }) => fingerprint)).toEqual(
          then.certificates.get(from.id) ?? [],
        );
        const isAllowed = isLetThrough(then.rules, from, to, port);
        const isByFormer = found?.reason.includes("had left the group") === true;
        expect([found?.allowed, found?.reason]).toEqual([isAllowed || isByFormer, found?.reason]);
        expect(doubts.filter((each) => !each.startsWith("Something was being changed"))).toEqual([]);
        // Without a port, the answer has the same port, or has it not.
        const [whole] = (await history.ask(then.at, `&from=${from.name}&to=${to.name}&protocol=tcp`)).access;
        const isIn = (whole?.permitted ?? []).some((each) => holds(each, port));
        expect([isIn, whole?.permitted]).toEqual([isAllowed || isByFormer, whole?.permitted]);
      } else {
        const { access } = await history.ask(then.at, `&to=${to.name}&port=${port}`);
        const expected = active.filter(
          (each) => each.id !== to.id && isLetThrough(then.rules, each, to, port),
        );
        const named = new Set(
          access.filter(({ reason }) => !reason.includes("had left")).map((each) => each.from.id),
        );
        expect(named).toEqual(new Set(expected.map(({ id }) => id)));
      }
    }
  }, 120_000);
}
