// Seals for tests, of organizations of any size.

import * as v from "valibot";
import { followSeals } from "../../src/pki/seal.ts";
import {
  canonicalJson,
  SealedState,
  sealNamespace,
  SignedSeal,
  type Seal,
  type Signer,
} from "../../src/protocol/seals/seal.ts";
import { sshSign } from "./ssh-keys.ts";

/** The first seal of an organization. `nodes`: how many have a role. */
export function sealOf({
  signers,
  nodes = 2,
  rules = 2,
}: {
  signers: readonly Signer[];
  nodes?: number;
  rules?: number;
}): Seal {
  return {
    version: 1,
    number: 1,
    made_at: 1_790_000_000,
    first: null,
    previous: null,
    mode: "observe",
    threshold: 1,
    signers: [...signers],
    state: {
      organization: "acme",
      networks: ["10.77.0.0/16"],
      authorities: ["a".repeat(64)],
      order_key: { kty: "OKP", crv: "Ed25519", x: "A".repeat(43), kid: "order" },
      nodes: Array.from({ length: nodes }, (_, at) => ({
        name: `hub${at}`,
        addresses: [`10.77.${at >> 8}.${(at & 255) + 1}`],
        lighthouse: at === 0,
        relay: true,
        routes: [],
        exit: [],
      })),
      rules: Array.from({ length: rules }, (_, at) => ({
        direction: "inbound" as const,
        protocol: "tcp" as const,
        ports: String(at + 1),
        peer: { group: `group-with-a-long-name-${at}` },
        target: { group: `servers-with-a-long-name-${at}` },
      })),
    },
  };
}

type Api = (method: string, path: string, body?: unknown) => Promise<unknown>;
const sealsPath = "/api/org/acme/seals/";
const Answer = v.object({ seals: v.array(SignedSeal), state: SealedState });

type Options = { signers?: readonly { line: string }[]; change?: Partial<Seal> };

/** Signs what the control plane would tell nodes now, as the next seal. `answer`: of GET. */
export function nextSigned(
  answer: unknown,
  keys: readonly { file: string; line: string }[],
  { signers = keys, change = {} }: Options = {},
): { seal: Seal; signed: SignedSeal } {
  const { seals, state } = v.parse(Answer, answer);
  const { held } = followSeals(seals, undefined);
  const seal: Seal = {
    ...sealOf({ signers: signers.map(({ line }, at) => ({ name: `signer${at}`, key: line })) }),
    ...(held === undefined
      ? {}
      : { number: held.seal.number + 1, first: held.seal.first ?? held.hash, previous: held.hash }),
    state,
    ...change,
  };
  return { seal, signed: signedBy(seal, keys) };
}

export async function publishNext(
  api: Api,
  keys: readonly { file: string; line: string }[],
  options: Options = {},
): Promise<{ seal: Seal; signed: SignedSeal }> {
  const next = nextSigned(await api("GET", sealsPath), keys, options);
  await api("POST", sealsPath, next.signed);
  return next;
}

export function signedBy(
  seal: Seal,
  keys: readonly { file: string }[],
  namespace = sealNamespace,
): SignedSeal {
  const text = canonicalJson(seal);
  return { text, signatures: keys.map(({ file }) => sshSign(file, Buffer.from(text), namespace)) };
}
