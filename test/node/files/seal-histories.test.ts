// Random histories of the seals that a node holds: signers sign, enforce and replace each other, a thief replays and forges,
// files get lost, root ends the seal, and a kill comes between any two writes. After each step the node takes no change that no
// signer signed; at the end it follows the signers again, with root's help only where a file was lost.

import { expect, test } from "bun:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { isSealMarked, sealFile } from "../../../src/node/files/granted/seal-files.ts";
import {
  decideSeals,
  endingWrites,
  enforcedSeal,
  heldSealHash,
  removeSeal,
  takeSeals,
  writeSealFiles,
} from "../../../src/node/files/held-seal.ts";
import { openTrusted, sealHash } from "../../../src/pki/seal.ts";
import type { Seal, SignedSeal } from "../../../src/protocol/seals/seal.ts";
import { makeSigner, signedByMade, type MadeSigner } from "../../support/made-signers.ts";
import { sealOf } from "../../support/seals.ts";
import { inFull } from "../../support/soak.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const histories = inFull ? 10_000 : 1000;
const stepsEach = 14;
const nowMs = 1_790_000_000_000;

/** Lehmer's generator: a history is its seed. */
function chooser(seed: number) {
  let state = (seed * 7919 + 20_261_121) % 0x7f_ff_ff_ff;
  const below = (count: number) => {
    state = (state * 48_271) % 0x7f_ff_ff_ff;
    return Math.floor((state / 0x7f_ff_ff_ff) * count);
  };
  return {
    below,
    of: <T>(all: readonly [T, ...T[]]): T => all[below(all.length)] ?? all[0],
  };
}

const people = ["ann", "bob", "cem", "eve"].map(makeSigner) as [
  MadeSigner,
  MadeSigner,
  MadeSigner,
  MadeSigner,
];
const eve = people[3];
const sealing = { offline: ["a".repeat(64)], privileged: ["admins"], revoked: [] };

/** What signers published, and what a thief makes of it. */
class Line {
  readonly seals: SignedSeal[] = [];
  signer: MadeSigner = people[0];
  #newest: Seal | undefined;

  publish(change: Partial<Seal> = {}, next: MadeSigner = this.signer): void {
    const seal = { ...this.next(), ...change, signers: [{ name: next.name, key: next.key }] };
    this.seals.push(signedByMade(seal, next === this.signer ? [next] : [this.signer, next]));
    this.#newest = seal;
    this.signer = next;
  }

  /** Not signed, and not published. */
  next(): Seal {
    const last = this.seals.at(-1);
    const { name, key } = this.signer;
    const first = sealOf({ signers: [{ name, key }] });
    if (last === undefined || this.#newest === undefined)
      return { ...first, state: { ...first.state, sealing } };
    const { number, first: begin } = this.#newest;
    const hash = sealHash(last.text);
    return { ...this.#newest, number: number + 1, first: begin ?? hash, previous: hash };
  }

  /** `trusted`: the signers of the node's seal. Until it learns of a replacement, a former signer is one for it. */
  forged(random: ReturnType<typeof chooser>, trusted: readonly string[]): SignedSeal[] {
    const own = { signers: [{ name: "eve", key: eve.key }] };
    const opened = { ...this.next(), state: { ...this.next().state, privileged: [] } };
    const { privileged: _, ...state } = opened.state;
    const seal: Seal = { ...opened, state: { ...state, rules: [] }, mode: random.of(["enforce", "observe"]) };
    const others = people.filter((each) => each !== this.signer && !trusted.includes(each.key));
    const former = random.of([eve, ...others]);
    return [
      random.of([
        signedByMade({ ...seal, ...own }, [eve]),
        signedByMade(seal, [former]),
        signedByMade({ ...seal, number: 1, first: null, previous: null, ...own }, [eve]),
        signedByMade({ ...seal, number: seal.number + 7, ...own }, [former, eve]),
        { ...(this.seals.at(-1) ?? { text: "{}" }), signatures: ["none"] },
      ]),
    ];
  }
}

const steps = [
  ...(["change", "change", "enforce", "observe", "replace the signer"] as const),
  ...(["sync", "sync", "sync", "replay", "forge"] as const),
  ...(["lose the file", "damage the file", "put it back", "unseal"] as const),
] as const;

/** Undefined: the control plane decides. "stays": the configuration in force is kept. */
function inForce(directory: string): number | "stays" | undefined {
  try {
    const state = enforcedSeal(directory, "acme");
    if (state === undefined) return undefined;
    return openTrusted(readHeld(directory)).seal.number;
  } catch (error) {
    if (error instanceof AppError && error.code === "bad_configuration") return "stays";
    throw error;
  }
}

const readHeld = (directory: string): string => {
  const parsed: unknown = JSON.parse(readFileSync(join(directory, sealFile), "utf8"));
  return typeof parsed === "object" && parsed !== null && "text" in parsed ? String(parsed.text) : "";
};

const trustedBy = (directory: string) => openTrusted(readHeld(directory)).seal.signers.map(({ key }) => key);

function run(seed: number, directory: string): void {
  const random = chooser(seed);
  const line = new Line();
  line.publish();
  const told: string[] = [];
  let kept: string | undefined;
  /** The file was lost or damaged since root or a sync put it in order. */
  let isHurt = false;
  /** The highest seal that this node enforced with all its files, until a signer or root ends that. */
  let floor: number | undefined;
  /** Takes these; a kill may come after any write. */
  const take = (seals: readonly SignedSeal[]) => {
    const { writes } = decideSeals([...seals], directory, nowMs);
    const count = random.below(writes.length + 2);
    told.push(`  ${count} of ${writes.length} writes`);
    if (count <= writes.length) writeSealFiles(writes.slice(0, count), directory);
    else takeSeals([...seals], directory, nowMs);
  };
  const path = join(directory, sealFile);
  for (let at = 0; at < stepsEach; at++) {
    const step = random.of(steps);
    told.push(step);
    const hash = heldSealHash(directory);
    const isThere = hash !== "" && hash !== "damaged";
    if (step === "change") line.publish({ made_at: line.next().made_at + 1 });
    else if (step === "enforce" || step === "observe") line.publish({ mode: step });
    else if (step === "replace the signer") line.publish({}, random.of([people[0], people[1], people[2]]));
    else if (step === "sync") take(line.seals);
    else if (step === "replay") take(line.seals.slice(0, 1 + random.below(line.seals.length)).slice(-1));
    // A node that holds nothing takes what it is sent: users compare the hash.
    else if (step === "forge" && hash !== "") take(line.forged(random, isThere ? trustedBy(directory) : []));
    else if (step === "lose the file" && hash !== "") {
      if (isThere) kept = readFileSync(path, "utf8");
      rmSync(path, { force: true });
      isHurt = true;
    } else if (step === "damage the file" && isThere) {
      kept = readFileSync(path, "utf8");
      writeFileSync(path, kept.slice(0, random.below(kept.length)));
      isHurt = true;
    } else if (step === "put it back" && isHurt && kept !== undefined) {
      writeFileSync(path, kept);
    } else if (step === "unseal") {
      writeSealFiles(endingWrites.slice(0, random.below(3)), directory);
      floor = undefined;
    }
    if (!["", "damaged"].includes(heldSealHash(directory))) isHurt = false;
    const now = inForce(directory);
    const where = `history ${seed}:\n${told.join("\n")}\nin force: ${now}`;
    if (typeof now === "number") {
      const text = readHeld(directory);
      expect([where, line.seals.some((each) => each.text === text)]).toEqual([where, true]);
      expect([where, now >= (floor ?? 0)]).toEqual([where, true]);
      if (isSealMarked(directory)) floor = now;
    } else if (now === undefined && floor !== undefined) {
      // Only a signed seal ends it.
      const { seal } = openTrusted(readHeld(directory));
      const isSigned = line.seals.some((each) => each.text === readHeld(directory));
      expect([where, seal.mode, isSigned, seal.number > floor]).toEqual([where, "observe", true, true]);
      floor = undefined;
    }
  }
  const newest = sealHash(line.seals.at(-1)?.text ?? "");
  takeSeals(line.seals, directory, nowMs);
  const where = `history ${seed}:\n${told.join("\n")}`;
  if (isHurt && heldSealHash(directory) !== newest) {
    removeSeal(directory);
    takeSeals(line.seals, directory, nowMs);
  }
  expect([where, heldSealHash(directory)]).toEqual([where, newest]);
  const isEnforced = openTrusted(line.seals.at(-1)?.text ?? "").seal.mode === "enforce";
  expect([where, inForce(directory) !== undefined, isSealMarked(directory)]).toEqual([
    where,
    isEnforced,
    isEnforced,
  ]);
}

test(`${histories} histories: no change that no signer signed, and no node that nobody can bring back`, () => {
  for (let seed = 1; seed <= histories; seed++) {
    using directory = temporaryDirectory();
    run(seed, directory.path);
  }
}, 1_800_000);
