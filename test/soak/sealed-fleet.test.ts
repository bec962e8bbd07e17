// A sealed organization of 1,000 nodes: how soon a change is in force after its signer uploads it, and that sealing, the
// rotation of both CAs, the loss of a signer and the replacement of all signers lose no ping between real engines. The other
// nodes have no engine (test/support/sealed-nodes.ts). About fifteen minutes.

import { expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Authorities } from "../../src/api/certificates/authorities.ts";
import { isApplied, readSyncState } from "../../src/node/files/generations.ts";
import { fingerprint, decodeCaBundle } from "../../src/pki/nebula.ts";
import { SealedState, SignedSeal } from "../../src/protocol/seals/seal.ts";
import { withHeldSealing, newestOf, nextSeal } from "../../src/server/config/next-seal.ts";
import { print, quantile } from "../bench/measure.ts";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { engineLog, makeMembers, pairsOf, type Member } from "../support/members.ts";
import { lost, lostAt, makeLan, startPing, type Pinger } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { makeRandom } from "../support/random.ts";
import { startSealedNodes } from "../support/sealed-nodes.ts";
import { makeSshKey, sshSign } from "../support/ssh-keys.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

const nodes = Number(process.env["FLEET_NODES"] ?? 1000);
const real = Number(process.env["FLEET_REAL"] ?? 12);
const rounds = Number(process.env["FLEET_ROUNDS"] ?? 10);
const seed = Number(process.env["FLEET_SEED"] ?? 1);
const pingMs = 200;
const maxMs = 2000;
/** Engines look at the certificate of a tunnel every few seconds. */
const tunnelsMs = 30_000;
const passphrase = "a long passphrase of signers";
const namespace = "seal@overlay-agent";
const Shown = v.object({ seals: v.array(SignedSeal), state: SealedState });

buildAgent();

class Fleet implements AsyncDisposable {
  readonly stack = new AsyncDisposableStack();
  readonly directory = this.stack.use(temporaryDirectory()).path;
  readonly lan = this.stack.use(
    makeLan(["hub", ...Array.from({ length: real - 1 }, (_, at) => `real${at + 1}`)]),
  );
  readonly signers = new Map<string, { file: string; line: string }>();
  plane!: Awaited<ReturnType<typeof startControlPlane>>;
  acme!: Awaited<ReturnType<typeof makeOrganization>>;
  members: Member[] = [];
  simulated!: Awaited<ReturnType<typeof startSealedNodes>>;
  words: string[] = [];
  #pings: Pinger[] = [];
  #files = 0;

  at = (name: string) => join(this.directory, name);

  async open(nebula: string): Promise<void> {
    for (const name of ["ann", "bob", "carl", "dora"]) this.signers.set(name, makeSshKey(this.at(name)));
    this.plane = this.stack.use(await startControlPlane(this.at("server")));
    this.acme = await makeOrganization(this.plane);
    const token = await this.acme.makeToken(["--uses", String(nodes)]);
    const count = nodes - real;
    // An engine that reads no address of the sealed network: with such addresses engines restart once.
    this.simulated = this.stack.use(await startSealedNodes(this.plane.url, "acme", token, count, "1.9.7"));
    const made = await makeMembers(this.acme, this.lan, this.directory, nebula);
    this.stack.use(made);
    this.members = made.members;
    const random = makeRandom(seed);
    for (const name of ["db", "ops"]) await this.admin(["group", "create", "acme", name]);
    for (const { name } of this.members.slice(1)) {
      const group = ["db", "ops", ""][Math.floor(random() * 3)] ?? "";
      if (group !== "") await this.admin(["node", "update", "acme", name, "--add-group", group]);
    }
    for (const { name, places } of this.members) {
      const { words } = v.parse(
        v.object({ words: v.array(v.string()) }),
        await agentJson(["key-words", "--config-root", places.configRoot]),
      );
      this.words.push("--words", `${name}=${words.join(" ")}`);
    }
  }

  async admin(args: readonly string[], input?: string): Promise<string> {
    const { status, stdout, stderr } = await this.plane.admin(args, input);
    if (status !== 0) throw new Error(`${args.join(" ")}: ${status}\n${stdout}${stderr}`);
    return stdout;
  }

  async shown() {
    const answer = await this.acme.api("GET", "/api/org/acme/seals/");
    const { seals, state } = v.parse(Shown, await answer.json());
    return { state, newest: newestOf(seals) };
  }

  /** Until each node has the newest seal, verified, and each real engine has confirmed its configuration. */
  async everywhere(): Promise<void> {
    const { newest } = await this.shown();
    const number = newest?.seal.number ?? 0;
    await until(
      () =>
        this.simulated.holding(number) === nodes - real &&
        this.members.every((member) => this.hasLoaded(member, number)),
      { what: `seal ${number} on all nodes`, ms: 120_000, everyMs: 100 },
    );
  }

  hasLoaded({ places }: Member, number: number): boolean {
    const directory = join(places.configRoot, "acme");
    return readSyncState(directory)?.seal?.number === number && isApplied(directory);
  }

  async sign(by: string, ca: string, more: readonly string[] = []): Promise<void> {
    const key = this.signers.get(by)?.file ?? "";
    const { newest } = await this.shown();
    const known = existsSync(this.at(`records-${by}/acme`)) ? [] : ["--known", newest?.hash ?? ""];
    const flags = ["--ca", this.at(ca), "--key", key, "--records", this.at(`records-${by}`), ...known];
    await this.admin(
      ["seal", "sign", "acme", ...flags, "--passphrase-file", "-", "--yes", ...this.words, ...more],
      passphrase,
    );
    await this.everywhere();
  }

  /** The seal with these signers, signed by others. */
  async publish(
    command: readonly string[],
    signers: readonly string[],
    by: readonly string[],
  ): Promise<void> {
    const file = this.at(`seal${++this.#files}`);
    const flags = signers.flatMap((name) => ["--signer", `${this.signers.get(name)?.file}.pub`]);
    const text = await this.admin(["seal", ...command, ...flags]);
    writeFileSync(file, text);
    const signatures = by.flatMap((name) => {
      writeFileSync(
        `${file}.${name}`,
        sshSign(this.signers.get(name)?.file ?? "", Buffer.from(text), namespace),
      );
      return ["--signature", `${file}.${name}`];
    });
    await this.admin(["seal", "publish", "acme", file, ...signatures]);
    await this.everywhere();
  }

  async makeCa(file: string): Promise<string> {
    await this.admin(["seal", "ca", "acme", this.at(file), "--passphrase-file", "-"], passphrase);
    const [ca] = decodeCaBundle(readFileSync(this.at(`${file}.crt`), "utf8"));
    return ca === undefined ? "" : fingerprint(ca);
  }

  async rotated(): Promise<void> {
    const phase = async () => {
      const answer = await this.acme.api("GET", "/api/org/acme/ca/");
      return v.parse(Authorities, await answer.json()).rotation.phase;
    };
    await until(async () => (await phase()) === "none", {
      what: "the end of the rotation",
      ms: 1_200_000,
      everyMs: 1000,
    });
  }

  async startPings(): Promise<void> {
    this.#pings = pairsOf(this.members).map(([from, to]) => startPing(from.host, to.ip, pingMs));
    await Promise.all(this.#pings.map((ping) => ping.reply(60_000)));
  }

  /** Does it while all ping each other; lets tunnels follow afterwards. How many were lost. */
  async pinged(what: string, act: () => Promise<void>): Promise<number> {
    await this.startPings();
    const from = performance.now();
    await act();
    await Bun.sleep(tunnelsMs);
    await Promise.all(this.#pings.map((ping) => ping.reply(20_000)));
    await Promise.all(this.#pings.map((ping) => ping.stop()));
    const gone = this.#pings.flatMap((ping) => lostAt(ping, pingMs));
    const count = this.#pings.reduce((sum, { replies }) => sum + replies.length, 0);
    const longest = Math.max(...this.#pings.map((ping) => lost(ping).length));
    const seconds = gone.map((at) => ((at - from) / 1000).toFixed(1)).slice(0, 40);
    print(
      `${what}: ${((performance.now() - from) / 1000).toFixed(0)} s, lost ${gone.length} of ${count + gone.length} pings of ${this.#pings.length} pairs, at most ${longest} of a pair${gone.length === 0 ? "" : `; after s ${seconds.join(" ")}`}`,
    );
    return gone.length;
  }

  /** Nodes refuse it until it is signed. All have heard of it. */
  async rule(port: number): Promise<void> {
    const words = ["--protocol", "tcp", "--ports", String(port), "--peer", "any"];
    await this.admin(["rule", "create", "acme", ...words]);
    await Bun.sleep(8000);
  }

  /** A rule for all nodes, signed: from the upload of the seal until each node enforces it, ms. */
  async change(
    by: string,
    port: number,
  ): Promise<{ simulated: number[]; verified: number[]; real: number[] }> {
    await this.rule(port);
    const { state, newest } = await this.shown();
    const next =
      newest && nextSeal(newest, withHeldSealing(state, newest.seal.state), newest.seal.signers, Date.now());
    if (next === undefined) throw new Error("nothing to sign");
    const signature = sshSign(this.signers.get(by)?.file ?? "", Buffer.from(next.text), namespace);
    const logs = new Map(this.members.map((member) => [member, engineLog(member).length]));
    const reals: number[] = [];
    const from = performance.timeOrigin + performance.now();
    const sent = this.acme.api("POST", "/api/org/acme/seals/", { text: next.text, signatures: [signature] });
    while (logs.size > 0) {
      await Bun.sleep(20);
      for (const [member, known] of logs)
        if (engineLog(member).slice(known).includes("New firewall has been installed")) {
          logs.delete(member);
          reals.push(performance.timeOrigin + performance.now() - from);
        }
    }
    const answer = await sent;
    if (!answer.ok) throw new Error(await answer.text());
    await this.everywhere();
    const took = this.simulated.took.filter(({ number }) => number === next.number);
    const simulated = took.map(({ at, ms }) => at + ms - from);
    return { simulated, verified: took.map(({ ms }) => ms), real: reals };
  }

  [Symbol.asyncDispose] = () => this.stack.disposeAsync();
}

const figures = (what: string, values: readonly number[]) =>
  print(
    `${what}: p50 ${quantile(values, 0.5).toFixed(0)} ms, p99 ${quantile(values, 0.99).toFixed(0)} ms, most ${Math.max(...values).toFixed(0)} ms (${values.length})`,
  );

asRoot("with root", () => {
  describeEngines(
    "a sealed organization of a thousand nodes",
    ({ nebula }) => {
      test("loses no ping, and takes a signed change at once", async () => {
        await using fleet = new Fleet();
        await fleet.open(nebula);
        print(`${nodes} nodes, ${real} of them real; seed ${seed}`);
        const losses: number[] = [];
        const phase = async (what: string, act: () => Promise<void>) =>
          void losses.push(await fleet.pinged(what, act));
        let first = "";
        await phase("sealing", async () => {
          await fleet.publish(["init", "acme", "--observe"], ["ann", "bob"], ["ann", "bob"]);
          first = await fleet.makeCa("first.key");
          await fleet.sign("ann", "first.key", ["--privileged", "db", "--privileged", "ops"]);
          await fleet.admin(["ca", "rotate", "acme", "--limited"]);
          await fleet.rotated();
          await fleet.sign("ann", "first.key", ["--enforce"]);
        });
        const all = { simulated: [] as number[], verified: [] as number[], real: [] as number[] };
        for (let round = 0; round < rounds; round++) {
          const { simulated, verified, real: loaded } = await fleet.change("ann", 2000 + round);
          all.simulated.push(...simulated);
          all.verified.push(...verified);
          all.real.push(...loaded);
        }
        figures("simulated nodes: seal verified and rendered after", all.simulated);
        figures("of that, verifying and rendering", all.verified);
        figures("real nodes: engine has loaded it after", all.real);
        figures("all nodes", [...all.simulated, ...all.real]);
        await phase("rotation of the online CA", async () => {
          await fleet.admin(["ca", "rotate", "acme"]);
          await fleet.sign("ann", "first.key");
          await fleet.rotated();
          await fleet.sign("ann", "first.key");
        });
        await phase("rotation of the offline CA", async () => {
          await fleet.makeCa("second.key");
          await fleet.sign("ann", "second.key", ["--end-ca", first]);
          await Bun.sleep(tunnelsMs);
          await fleet.sign("ann", "second.key", ["--end-ca", first]);
        });
        const known = async () => ["review", "acme", "--known", (await fleet.shown()).newest?.hash ?? ""];
        await phase("loss of a signer", async () => fleet.publish(await known(), ["bob"], ["bob"]));
        await phase("replacement of all signers", async () =>
          fleet.publish(await known(), ["carl", "dora"], ["bob", "carl", "dora"]),
        );
        // Once all engines read them, sealed nodes get addresses of the sealed network, and their engines restart.
        fleet.simulated.setEngine("1.12.0");
        await fleet.rule(1999);
        await fleet.pinged("addresses of the sealed network", () => fleet.sign("carl", "second.key"));
        expect(losses).toEqual(losses.map(() => 0));
        expect(quantile([...all.simulated, ...all.real], 0.99)).toBeLessThan(maxMs);
      }, 3_600_000);
    },
    ["1.12"],
  );
});
