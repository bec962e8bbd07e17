// Access that remains when a member leaves or a token is revoked: the flags that end it, and the lines that list it.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import type { InferInput } from "valibot";
import type * as api from "../../api/left-access.ts";
import { leaverSettings } from "../../api/users.ts";
import { settingFlags } from "../admin/setting-flags.ts";
import type { CommandOutput } from "../command.ts";
import type { Flags, Values } from "../values.ts";

type AccessReport = InferInput<typeof api.AccessReport>;
type AccessItem = AccessReport["access_left"][number];

export const revokeNodesFlag: Flags = {
  "revoke-nodes": { type: "boolean", description: "Also revoke the nodes that were registered this way" },
};

export const leaverFlags = settingFlags(leaverSettings);

/** The fields from the flags that end access. */
export const leaverEnds = (values: Values) => ({
  revoke_tokens: values.on(leaverSettings.revoke_tokens.flag),
  revoke_nodes: values.on(leaverSettings.revoke_nodes.flag),
});

/** More lines would push the result off the screen. --json lists up to 1000. */
const mostLines = 20;

/** "service token 7 (ci) of acme". */
const nameOfItem = ({ org_slug, kind, id, name }: AccessItem) =>
  `${kind.replace("_", " ")} ${id}${name === null ? "" : ` (${name})`} of ${org_slug}`;

/** A line for each of the first items. `total` may be more than the report has. */
function linesOf(
  items: readonly AccessItem[],
  total: number,
  lineOfItem: (item: AccessItem) => string,
): string[] {
  const shown = items.slice(0, mostLines);
  const more = total - shown.length;
  return [...shown.map(lineOfItem), ...(more > 0 ? [`and ${more} more`] : [])];
}

export const revokedLines = ({ access_revoked: revoked, access_revoked_total: total }: AccessReport) =>
  linesOf(revoked, total, (each) => `Revoked ${nameOfItem(each)}`)
    .map((line) => `${line}\n`)
    .join("");

const isToken = ({ kind }: AccessItem) => kind === "registration_token" || kind === "service_token";

/** Tokens alone, under the JSON keys of earlier versions. */
export function tokensOf({ access_left: left, access_revoked: revoked }: AccessReport) {
  return { tokens_left: left.filter(isToken), tokens_revoked: revoked.filter(isToken) };
}

/** Only the fields of the report, of an answer that has others too. */
export function reportOf(report: AccessReport): AccessReport {
  const { access_left, access_left_total, access_revoked, access_revoked_total } = report;
  return { access_left, access_left_total, access_revoked, access_revoked_total };
}

/** Says nothing with --json: the result has it. `subject`: the user or token, such as an e-mail address. */
export function sayAccessLeft({ json, say }: CommandOutput, subject: string, report: AccessReport): void {
  const { access_left: left, access_left_total: total } = report;
  if (json || left.length === 0) return;
  say(`Access of ${subject} that remains:`);
  for (const line of linesOf(left, total, (each) => `${nameOfItem(each)}${howToEnd(each)}`)) say(`  ${line}`);
}

function howToEnd({ kind, org_slug, id, name }: AccessItem): string {
  const node = `node revoke ${org_slug} ${quoteWord(name ?? "")}`;
  const lines = new Map([
    ["registration_token", `token revoke ${org_slug} ${id}`],
    ["service_token", `token revoke ${org_slug} ${id} --service`],
    ["node", node],
    ["registration", node],
    ["webhook", `webhook delete ${org_slug} ${id}`],
  ]);
  const line = lines.get(kind);
  return line === undefined ? "" : `: \`${brand.executable} admin ${line}\``;
}
