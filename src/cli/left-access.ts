// Access that remains when a member leaves or a token is revoked: the flags that end it, and the lines that list it.

import { brand } from "../brand.ts";
import { quoteWord } from "../plan.ts";
import type { Access, AccessItem, Ending } from "../server/offboarding/left-access.ts";
import type { CommandOutput } from "./command.ts";
import type { Flags, Values } from "./values.ts";

export const revokeNodesFlag: Flags = {
  "revoke-nodes": { type: "boolean", description: "Also revoke the nodes that were registered this way" },
};

export const leaverFlags: Flags = {
  "revoke-tokens": {
    type: "boolean",
    description: "Also revoke their registration and service tokens, and delete their webhooks",
  },
  ...revokeNodesFlag,
};

/** What the leaver flags ask for. */
export const leaverEnds = (values: Values): Required<Pick<Ending, "revokeTokens" | "revokeNodes">> => ({
  revokeTokens: values.on("revoke-tokens"),
  revokeNodes: values.on("revoke-nodes"),
});

/** More lines would push the result off the screen. --json lists up to 1000. */
const mostLines = 20;

const lineOf = ({ org_slug, kind, id, name }: AccessItem) =>
  `${kind.replace("_", " ")} ${id}${name === null ? "" : ` (${name})`} of ${org_slug}`;

function firstOf(items: readonly AccessItem[], line: (item: AccessItem) => string): string[] {
  const more = items.length - mostLines;
  return [...items.slice(0, mostLines).map(line), ...(more > 0 ? [`and ${more} more`] : [])];
}

export const revokedLines = ({ revoked }: Access) =>
  firstOf(revoked, (each) => `Revoked ${lineOf(each)}`)
    .map((line) => `${line}\n`)
    .join("");

/** Nothing with --json: the result holds it. `subject`: the user or token, such as an e-mail address. */
export function sayAccessLeft({ json, say }: CommandOutput, subject: string, { left }: Access): void {
  if (json || left.length === 0) return;
  say(`Access of ${subject} that remains:`);
  for (const line of firstOf(left, (each) => `${lineOf(each)}${howToEnd(each)}`)) say(`  ${line}`);
}

function howToEnd({ kind, org_slug, id, name }: AccessItem): string {
  const line = {
    registration_token: `token revoke ${org_slug} ${id}`,
    service_token: `token revoke ${org_slug} ${id} --service`,
    node: `node revoke ${org_slug} ${quoteWord(name ?? "")}`,
    registration: `node revoke ${org_slug} ${quoteWord(name ?? "")}`,
    invitation: undefined,
    webhook: undefined,
  }[kind];
  return line === undefined ? "" : `: \`${brand.executable} admin ${line}\``;
}
