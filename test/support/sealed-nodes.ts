// Nodes without engines for tests of large organizations: each holds its own long poll, downloads, and verifies and renders as
// the agent does, with the agent's code. A process of its own, because the poll of each node is a connection.

import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import * as v from "valibot";
import { version } from "../../package.json";
import { realSystem } from "../../src/base/system.ts";
import { readYaml } from "../../src/node/files/config/read-yaml.ts";
import { stringifyYaml } from "../../src/base/yaml.ts";
import { makeClient } from "../../src/node/contact/requests/client.ts";
import { checkAnswer } from "../../src/node/contact/verify-download.ts";
import { sealedConfig } from "../../src/node/files/granted/sealed-config.ts";
import { sealedFiles } from "../../src/node/files/granted/sealed-files.ts";
import { sealedSelf } from "../../src/node/files/granted/sealed-node.ts";
import { makeHostKey, makeNodeKey } from "../../src/pki/keys.ts";
import { followSeals } from "../../src/pki/seal.ts";
import { makeCsr } from "../../src/pki/x509.ts";
import type { ConfigFiles, DownloadAnswer } from "../../src/protocol/download.ts";
import { sealTag, SignedSeal } from "../../src/protocol/seals/seal.ts";

/** `at`: when the node had the seal, ms since 1970. `ms`: what it then took to verify it and to render the configuration. */
const Took = v.object({ node: v.number(), number: v.number(), at: v.number(), ms: v.number() });
type Took = v.InferOutput<typeof Took>;

type SealedNodes = AsyncDisposable & {
  /** The newest seal of each node, in the order of arrival. */
  took: Took[];
  /** How many nodes hold at least this seal. */
  holding(number: number): number;
  /** All report this engine from now on. */
  setEngine(version: string): void;
};

/** Resolves when all have registered and hold polls. */
export async function startSealedNodes(
  url: string,
  slug: string,
  token: string,
  count: number,
  engine: string,
): Promise<SealedNodes> {
  const argv = [process.execPath, import.meta.path, url, slug, String(count), engine];
  const env = { PATH: process.env["PATH"] ?? "", BUN_CONFIG_MAX_HTTP_REQUESTS: String(count + 100) };
  const child = Bun.spawn(argv, { env, stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  const send = (line: string) => {
    void child.stdin.write(`${line}\n`);
    void child.stdin.flush();
  };
  send(token);
  const took: Took[] = [];
  const newest = new Map<number, number>();
  const lines = createInterface({ input: Readable.from(child.stdout) })[Symbol.asyncIterator]();
  const first = await lines.next();
  if (first.value !== "ready") throw new Error(`The nodes ended with ${await child.exited}`);
  void (async () => {
    for (let line = await lines.next(); line.done !== true; line = await lines.next()) {
      const told = v.parse(Took, JSON.parse(line.value));
      took.push(told);
      newest.set(told.node, told.number);
    }
  })();
  return {
    took,
    holding: (number) => [...newest.values()].filter((each) => each >= number).length,
    setEngine: send,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

const system = realSystem();
type Sealed = ReturnType<typeof followSeals>["held"];

class SimulatedNode {
  #held: Sealed;
  #files: ConfigFiles | undefined;
  #etag = "";
  #version = 0;
  #id = 0;
  #client: ReturnType<typeof makeClient> | undefined;
  readonly #hostKey = makeHostKey();
  readonly #nodeKeyPem = makeNodeKey().privatePem;
  readonly #base: string;
  readonly #slug: string;
  constructor(base: string, slug: string) {
    this.#base = base;
    this.#slug = slug;
  }

  async register(name: string, token: string): Promise<void> {
    const client = makeClient({ base: this.#base, system });
    const answer = await client.register(this.#slug, {
      name,
      host_public_key: this.#hostKey.publicPem,
      node_csr: await makeCsr({ privateKeyPem: this.#nodeKeyPem, name }),
      mode: "server",
      version,
      overlay_version: engine,
      registration_token: token,
    });
    if (!("api_token" in answer)) throw new Error("waiting for approval");
    this.#id = answer.node.id;
    this.#client = makeClient({ base: this.#base, token: answer.api_token, system });
    await this.#take(answer.config);
  }

  /** Until the process ends. */
  async follow(): Promise<void> {
    for (;;) {
      try {
        const answer = await this.#client?.checkin(
          this.#slug,
          this.#id,
          {
            version,
            uptime: 7,
            config_version: this.#version,
            confirmed_config_version: this.#version,
            overlay_version: engine,
            overlay_state: "running",
          },
          { waitS: 50 },
        );
        if (answer?.config_changed === true) await this.#download();
      } catch (error) {
        process.stderr.write(`${String(error)}\n`);
        await Bun.sleep(1000);
      }
    }
  }

  async #download(): Promise<void> {
    const tags = [this.#etag, ...(this.#held === undefined ? [] : [sealTag(this.#held.hash)])].join(", ");
    const download = await this.#client?.downloadConfig(this.#slug, this.#id, tags);
    if (download?.changed !== true) {
      this.#version = download?.configVersion ?? this.#version;
      return;
    }
    const at = performance.timeOrigin + performance.now();
    const before = this.#held?.hash;
    const ms = await oneByOne(() => this.#take(download.answer));
    this.#etag = download.etag;
    if (this.#held === undefined || this.#held.hash === before) return;
    const told = { node: this.#id, number: this.#held.seal.number, at, ms };
    process.stdout.write(`${JSON.stringify(told)}\n`);
  }

  async #take(answer: DownloadAnswer): Promise<void> {
    const keys = { nodeKeyPem: this.#nodeKeyPem, hostKeyPem: this.#hostKey.privatePem };
    await checkAnswer(answer, { ...keys, slug: this.#slug, nodeId: answer.node.id, now: Date.now() });
    const sent = v.parse(v.optional(v.array(SignedSeal), []), answer.seals);
    const { held, refusal } = followSeals(sent, this.#held, Date.now());
    if (refusal !== undefined) throw new Error(refusal);
    this.#held = held;
    this.#version = answer.config_version;
    const { mode, state } = held?.seal ?? {};
    if (mode !== "enforce" || state?.sealing === undefined) {
      this.#files = answer.files;
      return;
    }
    const enforced = { ...state, sealing: state.sealing };
    this.#files = sealedFiles(enforced, answer.files, this.#files);
    const self = sealedSelf(enforced, this.#files["host.crt"]);
    stringifyYaml(sealedConfig(readYaml(answer.files["config.yml"], "config.yml"), self, engine));
  }
}

let engine = "";
let arrived = 0;
let turn: Promise<unknown> = Promise.resolve();
/**
 * Each node has a machine of its own, so none waits for what another one verifies: their work is done when all answers are here,
 * by turns. Returns how long it took, ms.
 */
async function oneByOne(work: () => Promise<void>): Promise<number> {
  for (let seen = ++arrived, isOver = false; !isOver; seen = arrived) {
    await Bun.sleep(100);
    isOver = seen === arrived;
  }
  const done = turn.then(async () => {
    const from = performance.now();
    await work();
    return performance.now() - from;
  });
  turn = done.catch(() => undefined);
  return done;
}

if (import.meta.main) {
  const [url = "", slug = "", count = "", first = ""] = process.argv.slice(2);
  engine = first;
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const token = String((await lines.next()).value);
  const nodes = Array.from({ length: Number(count) }, () => new SimulatedNode(url, slug));
  const waiting = nodes.map((node, at) => ({ node, name: `simulated-${at + 1}` }));
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      await next.node.register(next.name, token);
  };
  await Promise.all(Array.from({ length: 16 }, work));
  process.stdout.write("ready\n");
  for (const node of nodes) void node.follow();
  for (let line = await lines.next(); line.done !== true; line = await lines.next()) engine = line.value;
  // The test has ended.
  process.exit(0);
}
