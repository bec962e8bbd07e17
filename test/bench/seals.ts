// `bun test/bench/seals.ts [NODES]`: the seal of an organization of 10,000 nodes and 500 rules: its size (bar: 256 KB), and how
// long a node takes to verify the next one (bar: 20 ms), beside one signature and one hash of as many bytes. 60 of the nodes
// are lighthouses, relays or routers, they and 300 more have certificates of an offline CA.

import { createHash } from "node:crypto";
import { join } from "node:path";
import * as v from "valibot";
import { openSeal, openTrusted } from "../../src/pki/seal.ts";
import { parseSshKey, verifySshSignature } from "../../src/pki/ssh-signature.ts";
import {
  maxSealBytes,
  SealedState,
  sealNamespace,
  type SealedIdentity,
  type SealedNode,
  type SignedSeal,
} from "../../src/protocol/seals/seal.ts";
import { sealedAddressOf, sealedNetworkOf } from "../../src/protocol/seals/sealed-network.ts";
import { nextSeal } from "../../src/server/config/next-seal.ts";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent, runAgent } from "../support/agent.ts";
import { makeSshKey, sshSign } from "../support/ssh-keys.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { figure, print } from "./measure.ts";
import { groups, seed, slug } from "./seed.ts";

const count = Number(process.argv[2] ?? 10_000);
const withRole = 60;
const sealed = 300;
const rules = 500;
const ca = createHash("sha256").update("ca").digest("hex");
const network6 = sealedNetworkOf(ca);
const hex = (name: string) => createHash("sha256").update(name).digest("hex");

/** Lighthouses, relays, routers of two networks, and rules of all kinds. */
async function fill(dataDirectory: string): Promise<void> {
  await seed({ dataDirectory }, count);
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  try {
    await db.write(async (tx) => {
      await tx.run("UPDATE nodes SET is_lighthouse = 1 WHERE id <= 10");
      await tx.run("UPDATE nodes SET is_relay = 1 WHERE id BETWEEN 11 AND 20");
      for (let id = 21; id <= withRole; id++) {
        const behind = JSON.stringify([`172.16.${id}.0/24`, `172.17.${id}.0/24`]);
        await tx.run("UPDATE nodes SET subnets = $2 WHERE id = $1", [id, behind]);
      }
      for (let at = 0; at < rules; at++) {
        const named = (to: number) => ({ group: `group-${to % groups}` });
        const peer = at % 3 === 0 ? { node: 1 + at } : at % 3 === 1 ? named(at) : { any: true };
        await tx.run(
          `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, created_at)
           VALUES (1, 'inbound', 'tcp', $1, $2, $3, 1)`,
          [String(1000 + at), JSON.stringify(peer), JSON.stringify(named(at * 7))],
        );
      }
    });
  } finally {
    await db.close();
  }
}

const identityOf = (at: number): SealedIdentity => ({
  kind: at % 2 === 0 ? "closed" : "open",
  key: hex(`key ${at}`),
  groups: [`group-${at % groups}`],
  address6: sealedAddressOf(network6, hex(`key ${at}`)),
});

const identified = (at: number): SealedNode => ({
  name: `node-${withRole + 1 + at}`,
  addresses: [`10.77.${at >> 8}.${at & 255}`],
  lighthouse: false,
  relay: false,
  routes: [],
  exit: [],
  identity: identityOf(withRole + at),
});

using directory = temporaryDirectory();
const data = join(directory.path, "server");
await fill(data);
const key = makeSshKey(join(directory.path, "ann"));
buildAgent();
const init = ["admin", "seal", "init", slug, "--observe", "--signer", `${key.file}.pub`, "--data-dir", data];
const { stdout, status, stderr } = await runAgent(init);
if (status !== 0) throw new Error(stderr);
const first = openTrusted(stdout);
const { state } = first.seal;
const whole = v.parse(SealedState, {
  ...state,
  authorities: [...state.authorities, ca].sort(),
  nodes: [
    ...state.nodes.map((node, at) => ({ ...node, identity: identityOf(at) })),
    ...Array.from({ length: sealed }, (_, at) => identified(at)),
  ],
  sealing: {
    offline: [ca],
    network6,
    privileged: ["group-1", "group-2"],
    revoked: Array.from({ length: 50 }, (_, at) => hex(`old ${at}`)),
  },
});
const next = nextSeal(first, whole, first.seal.signers, Date.now(), "enforce");
if (next === undefined) throw new Error("nothing to seal");
const signed: SignedSeal = {
  text: next.text,
  signatures: [sshSign(key.file, Buffer.from(next.text), sealNamespace)],
};
print(
  `${count} nodes, of them ${state.nodes.length} with a role and ${sealed} sealed, ${state.rules.length} rules`,
);
figure("the seal", Buffer.byteLength(next.text) / 1024, { unit: "KB", most: maxSealBytes / 1024 });
const times: number[] = [];
const floors: number[] = [];
for (let round = 0; round < 20; round++) {
  const begin = performance.now();
  openSeal(signed, first, Date.now());
  const middle = performance.now();
  createHash("sha256").update(signed.text).digest();
  verifySshSignature(signed.signatures[0] ?? "", Buffer.from(signed.text), sealNamespace, [
    parseSshKey(key.line),
  ]);
  times.push(middle - begin);
  floors.push(performance.now() - middle);
}
figure("the first verification", times.slice(0, 1), { unit: "ms", digits: 2, most: 20 });
figure("a verification", times, { unit: "ms", digits: 2, floor: floors, most: 20 });
