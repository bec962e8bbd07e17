// What a signer reads before signing: all that the next seal changes, computed on this machine from the seal that the signer knows.
// A seal says what the control plane may send the nodes (protocol/seals/seal.ts).

import type { AnswerOf } from "../../../api/endpoint.ts";
import type { sealsApi } from "../../../api/certificates/seals.ts";
import { countOf } from "../../../base/quantities.ts";

type NextSeals = typeof import("../../../server/config/next-seal.ts");
type OpenedSeal = ReturnType<NextSeals["newestAfter"]>;

export type Compared = {
  slug: string;
  /** The seal that this signer knows. Undefined: the organization has none yet. */
  known: OpenedSeal | undefined;
  /** The newest that is published. Other signers may have signed it. */
  newest: OpenedSeal | undefined;
  /** What the next seal says. */
  after: Parameters<NextSeals["changesOf"]>[1];
  /** Of the next seal; of the newest one if nothing waits for a signature. */
  number: number | undefined;
  /** Certificates of the CAs. */
  authorities: AnswerOf<typeof sealsApi.list>["authorities"];
};
type Pairs = Awaited<ReturnType<(typeof import("../../../server/config/seal-pairs.ts"))["pairDifferences"]>>;
export type Changes = ReturnType<NextSeals["changesOf"]> & { authorities: string[]; pairs: Pairs };

/** All that changes from the seal that this signer knows. Throws for a CA that nodes must not trust. */
export async function changesIn({ known, after, authorities }: Compared): Promise<Changes> {
  const { changesOf } = await import("../../../server/config/next-seal.ts");
  const { authorityWords } = await import("../../../server/config/sealed-authorities.ts");
  const { pairDifferences } = await import("../../../server/config/seal-pairs.ts");
  return {
    ...changesOf(known?.seal, after),
    authorities: authorityWords(known?.seal, after, authorities),
    pairs: await pairDifferences(known?.seal.state, after.state),
  };
}

/** The changes as lines, the most important first. `pairs.reason`: why not all pairs of nodes could be compared. */
export async function changeLines(
  { slug, known, newest, number }: Compared,
  { gained, lost, signers, authorities, pairs }: Changes,
): Promise<string[]> {
  const { shownText } = await import("../../../server/config/next-seal.ts");
  const isOlder = known !== undefined && known.hash !== newest?.hash;
  const since = isOlder ? `, compared with seal ${known.seal.number} that you know` : "";
  const counts = `${gained.length} gained, ${lost.length} lost, ${countOf(signers.length, "signer")} changed`;
  return [
    `Seal ${number} of ${slug}${since}: ${counts}`,
    ...signers,
    ...authorities,
    ...(pairs.reason === undefined ? [] : [pairs.reason]),
    ...pairs.gained.map((each) => `+ access: ${each}`),
    ...gained.map((each) => `+ ${each}`),
    ...lost.map((each) => `- ${each}`),
    ...pairs.lost.map((each) => `- access: ${each}`),
    ...pairs.legend,
  ].map(shownText);
}
