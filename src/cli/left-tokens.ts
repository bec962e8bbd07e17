// What becomes of the tokens of somebody who goes: the flag, and the words for what is left.

import { brand } from "../brand.ts";
import type { TokensOfGone } from "../server/people/issued-tokens.ts";
import type { CommandOutput } from "./command.ts";
import type { Flags } from "./values.ts";

export const revokeTokensFlag: Flags = {
  "revoke-tokens": {
    type: "boolean",
    description: "Revoke the registration and service tokens that they made, too",
  },
};

const lineOf = ({ org_slug, kind, id, name }: TokensOfGone["tokens_left"][number]) =>
  `${kind.replace("_", " ")} ${id}${name === null ? "" : ` (${name})`} of ${org_slug}`;

export const revokedLines = ({ tokens_revoked }: TokensOfGone) =>
  tokens_revoked.map((each) => `Revoked ${lineOf(each)}\n`).join("");

/** With --json they stand in the object. */
export function sayTokensLeft(
  { json, say }: CommandOutput,
  email: string,
  { tokens_left }: Pick<TokensOfGone, "tokens_left">,
): void {
  if (json || tokens_left.length === 0) return;
  say(`Tokens that ${email} made still count:`);
  for (const each of tokens_left) {
    const flag = each.kind === "service_token" ? " --service" : "";
    say(`  ${lineOf(each)}: \`${brand.executable} admin token revoke ${each.org_slug} ${each.id}${flag}\``);
  }
}
