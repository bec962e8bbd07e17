// The CAs of the control plane in the next seal, in words, on a signer's machine: from their certificates, each of which must have
// the fingerprint that the seal names. Called by `admin seal` there. The control plane has the key of an online CA, signers have those
// of offline ones. A limited CA certifies only addresses of the organization. Pure.

import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { brand } from "../../brand.ts";
import { decodeCaBundle, fingerprint, type NebulaCertificate } from "../../pki/nebula.ts";
import type { Seal, SealedState } from "../../protocol/seals/seal.ts";
import { beyondLimits, limitWords } from "../certificates/ca-limits.ts";

type Content = Pick<Seal, "state" | "mode">;

const ipv6Hint = `To enforce seals, create an organization without an IPv6 network (\`${brand.executable} admin org create\`), and register the machines there.`;

/** Why nodes can never enforce a seal of this organization. Undefined: nothing prevents it for ever. */
function ipv6Words({ organization, networks }: SealedState): string | undefined {
  const network6 = networks.find((each) => each.includes(":"));
  return network6 === undefined
    ? undefined
    : `${organization} has the IPv6 network ${network6}, so its nodes can only observe seals. A limited CA certifies IPv4 addresses alone, and no command removes an IPv6 network`;
}

/**
 * A sentence for each online CA that `before` lacks. Throws for one that is not limited, once nodes enforce the seal: conflict
 * if they begin to, untrusted_answer afterwards. Also conflict where nodes begin to enforce a seal with an IPv6 network. `pem`:
 * the CAs as the control plane sent them; undefined: it is of an earlier version, which sends none.
 */
export function authorityWords(
  before: Content | undefined,
  after: Content,
  pem: string | undefined,
): string[] {
  const sent = new Map(pem ? decodeCaBundle(pem).map((ca) => [fingerprint(ca), ca]) : []);
  const known = onlineIn(before?.state);
  // CAs that were checked when their seal was signed: while nodes only observed, no limit was demanded.
  const proved = before?.mode === "enforce" ? known : [];
  const online = onlineIn(after.state).map((print) => {
    const ca = sent.get(print);
    return { print, words: ca === undefined ? "unknown" : limitWords(ca), faults: faultsOf(ca, after.state) };
  });
  const wrong = online.find(({ print, faults }) => faults.length > 0 && !proved.includes(print));
  const ipv6 = ipv6Words(after.state);
  if (after.mode === "enforce" && before?.mode !== "enforce" && ipv6 !== undefined)
    throw new AppError("conflict", ipv6, { hint: ipv6Hint });
  if (after.mode === "enforce" && wrong !== undefined)
    throw refused(wrong, after, before?.mode === "enforce");
  const sentences = online
    .filter(({ print }) => !known.includes(print))
    .toSorted((a, b) => (a.words < b.words ? -1 : 1))
    .flatMap(({ print, words, faults }) => [
      `CA ${print}: ${words}`,
      ...(faults.length === 0 ? [] : [`! Not limited, as --enforce demands: ${faults.join("; ")}`]),
    ]);
  return ipv6 === undefined ? sentences : [`! ${ipv6}. ${ipv6Hint}`, ...sentences];
}

const onlineIn = (state: SealedState | undefined): string[] =>
  (state?.authorities ?? []).filter((print) => state?.sealing?.offline.includes(print) !== true);

const faultsOf = (ca: NebulaCertificate | undefined, { networks }: SealedState): string[] =>
  ca === undefined ? ["the control plane does not send its certificate"] : beyondLimits(ca, networks);

function refused(
  { print, faults }: { print: string; faults: readonly string[] },
  { state: { organization } }: Content,
  isLater: boolean,
): AppError {
  const command = `\`${brand.executable} admin ca rotate ${quoteWord(organization)} --limited\``;
  return new AppError(
    isLater ? "untrusted_answer" : "conflict",
    `Nodes must not trust the CA ${print} of the control plane beside the offline CA: ${faults.join("; ")}`,
    {
      hint: isLater
        ? "Do not sign. Find out who made this CA: a rotation keeps the limits of the one before."
        : `Replace it first: ${command}. Sign when \`${brand.executable} admin ca show ${quoteWord(organization)}\` shows that the rotation is over.`,
    },
  );
}
