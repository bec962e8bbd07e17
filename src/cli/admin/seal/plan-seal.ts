// What the next seal says, by the flags of `agent admin seal sign` and the newest seal. A seal says what the nodes of an organization
// may be told. Its signers sign it, and hold the keys of the offline CAs.

import type { AnswerOf } from "../../../api/endpoint.ts";
import { sealsApi, type Sealable } from "../../../api/certificates/seals.ts";
import { AppError } from "../../../base/errors.ts";
import { brand } from "../../../brand.ts";
import type { Context } from "../../command.ts";
import type { Values } from "../../values.ts";
import type { Api } from "../api.ts";
import { missingGroups } from "../lookup.ts";
import type { Issued } from "../../../server/config/sign-seal.ts";
import type { Records } from "./records.ts";

type NextSeals = typeof import("../../../server/config/next-seal.ts");
type OpenedSeal = ReturnType<NextSeals["newestAfter"]>;
type Answer = AnswerOf<typeof sealsApi.list>;
type State = Answer["state"];
type Mode = "observe" | "enforce";

export type Plan = {
  /** What the next seal says of the organization. */
  state: State;
  /** The nodes that need a certificate of the offline CA, and the versions of all engines. */
  sealable: AnswerOf<typeof sealsApi.sealable>;
  /** The certificates that this signer has made, by the records. */
  issued: Issued;
  mode: Mode;
};

/** What the next seal would say after the flags' changes. Throws usage for flags that name what is not there. */
export async function plannedSeal(
  { values, words, system }: Context,
  {
    api,
    answer,
    newest,
    records,
  }: {
    api: Api;
    answer: Answer;
    /** The newest seal; undefined if the organization has none. */
    newest: OpenedSeal | undefined;
    records: Records;
  },
): Promise<Plan> {
  const [slug = ""] = words;
  const { withHeldSealing } = await import("../../../server/config/next-seal.ts");
  const signing = await import("../../../server/config/sign-seal.ts");
  const { parse } = await import("valibot");
  const before = newest?.seal.state.sealing ?? { offline: [], privileged: [] };
  const mode = modeOf(values, newest);
  const privileged = await privilegedGroups(values, { api, slug, before: before.privileged });
  const ownCa = await readOwnCa(values);
  const sealable = await api.call(sealsApi.sealable, { slug }, { groups: privileged });
  const nodeNames = sealable.nodes.map(({ name }) => name);
  for (const flag of ["open", "closed"])
    refuseUnknown(flag, unknownIn(values, flag, nodeNames), "is no sealed node");
  const ended = await endedCas(values, { ownCa, before: before.offline, nodes: sealable.nodes });
  // `authorities`: the CAs that nodes trust. Signers have ended the others.
  const kept = before.offline.filter(
    (print) => print !== ownCa && !ended.includes(print) && answer.state.authorities.includes(print),
  );
  // `open`: sealed nodes that serve unprivileged nodes too; `closed`: those that do not. `hasNetwork`: sealed nodes get addresses in an
  // IPv6 network of their own, since all engines read such certificates.
  const choices = {
    offline: [...kept, ownCa],
    privileged,
    open: values.list("open"),
    closed: values.list("closed"),
    ended,
    hasNetwork: signing.readsNetwork(sealable.engines),
  };
  const issued = parse(signing.Issued, JSON.parse(records.issued() ?? "[]"));
  // What signers alone decide comes from the newest seal, whatever the control plane says of it.
  const carried = withHeldSealing(answer.state, newest?.seal.state);
  const state = signing.composeSealedState(carried, sealable.nodes, choices, issued, system.now());
  return { state, sealable, issued, mode };
}

function modeOf(values: Values, newest: OpenedSeal | undefined): Mode {
  const [enforces, observes] = [values.on("enforce"), values.on("observe")];
  if (enforces && observes) throw new AppError("usage", "Give --enforce or --observe, not both");
  if (enforces) return "enforce";
  return observes ? "observe" : (newest?.seal.mode ?? "observe");
}

/** The groups that only the offline CA gives. `before`: those of the newest seal. */
async function privilegedGroups(
  values: Values,
  { api, slug, before }: { api: Api; slug: string; before: readonly string[] },
): Promise<string[]> {
  // Groups that are privileged already stay so, even if they were deleted: only the others must exist.
  const missing = await missingGroups(api, slug, unknownIn(values, "privileged", before));
  refuseUnknown("privileged", missing, `is no group of ${slug}`);
  const removed = values.list("not-privileged");
  refuseUnknown("not-privileged", unknownIn(values, "not-privileged", before), "is no privileged group");
  return [...before, ...values.list("privileged")].filter((group) => !removed.includes(group));
}

/** The fingerprint of the CA of --ca. Throws usage unless key and certificate are there. */
async function readOwnCa(values: Values): Promise<string> {
  const { readTextIfThere } = await import("../../../base/files.ts");
  const { printOfCa } = await import("../../../server/config/offline-key.ts");
  const file = values.required("ca");
  const [key, certificate] = [file, `${file}.crt`].map((each) => readTextIfThere(each));
  if (key !== undefined && certificate !== undefined) return printOfCa(certificate);
  throw new AppError("usage", `--ca ${file}: there is no ${key === undefined ? file : `${file}.crt`}`, {
    hint: `\`${brand.executable} admin seal ca\` wrote the key and its .crt: give the key, with the .crt beside it.`,
  });
}

/** The offline CAs of --end-ca that no node has a certificate of any more: nodes need not trust them. */
async function endedCas(
  values: Values,
  { ownCa, before, nodes }: { ownCa: string; before: readonly string[]; nodes: readonly Sealable[] },
): Promise<string[]> {
  const { issuedBy } = await import("../../../server/config/sign-seal.ts");
  const ending = values.list("end-ca");
  const refused = ending.find((print) => print === ownCa || !before.includes(print));
  if (refused !== undefined)
    throw new AppError(
      "usage",
      `--end-ca ${refused} is not the fingerprint of another offline CA of the seal`,
    );
  return ending.filter((print) => issuedBy(nodes, [print]).length === 0);
}

/** The values of a flag that are not among the known ones. */
const unknownIn = (values: Values, flag: string, known: readonly string[]) =>
  values.list(flag).filter((each) => !known.includes(each));

/** Throws usage for the first name: a misspelt one would be signed, and protect nothing. */
function refuseUnknown(flag: string, names: readonly string[], why: string): void {
  if (names[0] !== undefined) throw new AppError("usage", `--${flag} ${names[0]}: this ${why}`);
}
