// Access that remains when a member leaves or a token is revoked: the flags that end it, and the result that lists it.

import { brand } from "../../../brand.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { InferInput } from "valibot";
import type * as api from "../../../api/left-access.ts";
import { leaverSettings } from "../../../api/users.ts";
import { settingFlags } from "../setting-flags.ts";
import type { CommandOutput } from "../../command.ts";
import { switchFlag, type Values } from "../../values.ts";

type AccessReport = InferInput<typeof api.AccessReport>;
type AccessItem = AccessReport["access_left"][number];

export const revokeNodesFlag = {
  "revoke-nodes": switchFlag("Also revoke the nodes that were registered this way"),
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

const isToken = ({ kind }: AccessItem) => kind === "registration_token" || kind === "service_token";

/** Tokens alone, under the JSON keys of earlier versions. */
export function tokensOf({ access_left: left, access_revoked: revoked }: AccessReport) {
  return { tokens_left: left.filter(isToken), tokens_revoked: revoked.filter(isToken) };
}

/**
 * The result of a command that ends access: what it did, what it revoked, and what remains. `subject`: the user or token, such as an
 * e-mail address. `fields`: those of --json beside the report. `done`: what the command did, in words.
 */
export function resultOfEnding(
  output: Pick<CommandOutput, "json" | "result" | "say">,
  { subject, fields, done }: { subject: string; fields: object; done: string },
  report: AccessReport,
): void {
  const { access_left, access_left_total, access_revoked, access_revoked_total } = report;
  const revoked = linesOf(access_revoked, access_revoked_total, (each) => `Revoked ${nameOfItem(each)}`);
  output.result({ ...fields, ...report }, [done, ...revoked].map((line) => `${line}\n`).join(""));
  // The result of --json has it.
  if (output.json || access_left.length === 0) return;
  output.say(`Access of ${subject} that remains:`);
  const left = linesOf(access_left, access_left_total, (each) => `${nameOfItem(each)}${howToEnd(each)}`);
  for (const line of left) output.say(`  ${line}`);
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
