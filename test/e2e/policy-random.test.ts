// Random policies, applied as files: what the control plane says about each pair of nodes is what real packets through
// real engines do. A few of the 200 policies; all in test/soak/policy-random.test.ts.

import { expect, test } from "bun:test";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { asRoot, describeEveryEngine } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, owner, startEngine, type Organization } from "../support/overlay.ts";
import { end, paste, post, type Node } from "../support/policy-nodes.ts";
import { startProber, type Prober, type Question } from "../support/prober.ts";
import { makeRandom } from "../support/random.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { startEcho } from "../support/traffic.ts";

buildAgent();

/** For each of the three engines; the older ones take a tenth where they are not due. */
const eachEngine = inFull ? 67 : 5;
const ports = [1001, 1002, 1003];
const members = { a: ["web", "staff"], b: ["staff"], c: ["db"], d: [] };
const ada = "ada@company.example";
/** The other nodes belong to the organization. */
const owners: Record<string, string> = { a: ada, b: ada, c: owner.email };
const Verdict = v.object({ allowed: v.boolean() });

/** A policy with up to seven rules, in the words of a policy file. */
function makeRules(random: () => number): object[] {
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
  const side = () =>
    random() < 0.15
      ? `user:${pick(Object.values(owners))}`
      : pick(["any", "group:web", "group:staff", "group:db", "node:a", "node:b", "node:c", "node:d"]);
  const networks = ["10.77.0.2/31", "10.77.0.4/32", "10.77.0.0/16"];
  const peer = () => (random() < 0.15 ? pick(networks) : random() < 0.25 ? "self" : side());
  const rule = () => {
    const protocol = pick(["any", "tcp", "udp", "icmp"]);
    const range = pick(["any", "1001", "1002-1003", "1-1002", "1003"]);
    return {
      direction: random() < 0.7 ? "inbound" : "outbound",
      protocol,
      ...(protocol === "icmp" ? {} : { ports: range }),
      peer: peer(),
      target: side(),
    };
  };
  // Without outgoing traffic nothing passes: most policies permit all of it, as administrators do.
  const out = { direction: "outbound", protocol: "any", ports: "any", peer: "any", target: "any" };
  const rules = Array.from({ length: 1 + Math.floor(random() * 6) }, rule);
  const all = random() < 0.7 ? [out, ...rules] : rules;
  // A file with the same rule twice is refused.
  return all.filter((each, at) => all.findIndex((other) => Bun.deepEquals(other, each)) === at);
}

type Asked = Question & { from: Node; to: Node };

function allQuestions(nodes: readonly Node[]): Asked[] {
  const pairs = nodes.flatMap((from) => nodes.filter((to) => to !== from).map((to) => ({ from, to })));
  return pairs.flatMap(({ from, to }) => {
    const at = { from, to, address: to.ip_address };
    const each = ports.flatMap((port) =>
      (["tcp", "udp"] as const).map((protocol) => ({ ...at, protocol, port })),
    );
    return [...each, { ...at, protocol: "icmp" as const, port: 0 }];
  });
}

async function explain(acme: Organization, questions: readonly Asked[]): Promise<boolean[]> {
  const verdicts: boolean[] = [];
  // One after the other: the server refuses more than a few such questions at once.
  for (const { from, to, protocol, port } of questions) {
    const asked = { from: from.node_id, to: to.node_id, protocol, ...(protocol === "icmp" ? {} : { port }) };
    verdicts.push(v.parse(Verdict, await post(acme, "firewall_rules/test/", asked)).allowed);
  }
  return verdicts;
}

async function send(probers: ReadonlyMap<Node, Prober>, questions: readonly Asked[]): Promise<boolean[]> {
  const results = new Map<Asked, boolean>();
  await Promise.all(
    [...Map.groupBy(questions, ({ from }) => from)].map(async ([from, own]) => {
      const words = own.map(({ protocol, address, port }) => ({ protocol, address, port }));
      const answers = (await probers.get(from)?.ask(words)) ?? [];
      for (const [at, each] of own.entries()) results.set(each, answers[at] === true);
    }),
  );
  return questions.map((each) => results.get(each) === true);
}

/**
 * Engines of 1.6 see no identifiers in ICMP: once a node may ping a peer, the peer's own pings count as answers. So there
 * a refusal of ICMP cannot be expected between nodes that ping each other.
 */
const isCertain = (version: string, { protocol }: Asked, isAllowed: boolean) =>
  isAllowed || protocol !== "icmp" || !version.startsWith("1.6.");

const wordsOf = ({ from, to, protocol, port }: Asked, isReached: boolean) =>
  `${from.name} ${isReached ? "reaches" : "does not reach"} ${to.name} ${protocol}/${port}`;

asRoot("random policies", () => {
  describeEveryEngine("with packets", ({ nebula, version }, inPart) => {
    const policies = inPart ? Math.ceil(eachEngine / 10) : eachEngine;
    test(`${policies} policies: the explainer and real packets agree`, async () => {
      await using stack = new AsyncDisposableStack();
      const directory = stack.use(temporaryDirectory());
      const plane = stack.use(await startControlPlane(join(directory.path, "server")));
      const acme = await makeOrganization(plane);
      const lan = stack.use(makeLan(["lighthouse", ...Object.keys(members)]));
      const enrol = (name: string, groups: string[], flags: string[] = []) =>
        paste(acme, { root: directory.path, host: lan.host(name), engine: nebula }, groups, flags);
      const lighthouse = await enrol("lighthouse", [], ["--public-ip", lan.host("lighthouse").address]);
      const nodes: Node[] = [];
      for (const [name, groups] of Object.entries(members)) nodes.push(await enrol(name, groups));
      const all = [lighthouse, ...nodes];
      await plane.admin(["user", "create", ada, "--password-file", "-"], owner.password);
      await post(acme, "members/", { email: ada, role: "member" });
      for (const { name, node_id } of all)
        await post(acme, `nodes/${node_id}/transfer/`, { owner: owners[name] ?? null });
      const sync = ({ directory: own }: Node) =>
        agentJson(["sync-config", "--config-root", dirname(own), "--overlay-binary", nebula]);
      const engines = await Promise.all(
        all.map(({ host, directory: own }) => startEngine(host, nebula, own)),
      );
      await Promise.all(nodes.map(({ host }) => startEcho(host, ports)));
      const probers = new Map(nodes.map((node) => [node, stack.use(startProber(node.host))]));
      const questions = allQuestions(nodes);
      const random = makeRandom(Number(version.replaceAll(".", "")));
      let [permitted, refused] = [0, 0];
      for (let at = 0; at < policies; at++) {
        const policy = JSON.stringify({ rules: makeRules(random) });
        await post(acme, "policy/apply/", { policy, prune: true });
        await Promise.all(all.map(sync));
        for (const engine of engines) engine.hangUp();
        const said = await explain(acme, questions);
        let different: string[] = [];
        // Engines reload, and first packets of a tunnel wait for its handshake: what is wrong stays wrong.
        for (let attempt = 0; attempt < 12; attempt++) {
          const seen = await send(probers, questions);
          different = questions.flatMap((each, n) =>
            seen[n] === said[n] || !isCertain(version, each, said[n] === true)
              ? []
              : [wordsOf(each, seen[n] === true)],
          );
          if (different.length === 0) break;
        }
        expect({ at, policy, different }).toEqual({ at, policy, different: [] });
        permitted += said.filter((each) => each).length;
        refused += said.filter((each) => !each).length;
      }
      process.stdout.write(`${policies} policies: ${permitted} flows permitted, ${refused} refused\n`);
      // Both kinds are tested.
      expect(Math.min(permitted, refused)).toBeGreaterThan(0);
      end(engines);
    }, 3_600_000);
  });
});
