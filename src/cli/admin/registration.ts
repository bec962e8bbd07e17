// `agent admin registration …`: machines that wait for approval.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { quoteWord } from "../../plan.ts";
import type { Context, Implementation } from "../command.ts";
import { orgArg } from "../server-flags.ts";
import { RegistrationItem } from "./answers.ts";
import { inOrg, Nothing, read, write, type Api } from "./api.ts";
import { targetFlags } from "./target.ts";

const waitingIn = (api: Api, slug: string) => api.list(inOrg(slug, "registrations/"), RegistrationItem);

export const list: Implementation = {
  notes: `Compare KEY with what the machine shows. \`${brand.executable} admin org update ORG --approval all\` makes new machines wait.`,
  args: { ...orgArg, ...targetFlags },
  examples: [`${brand.executable} admin registration list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const registrations = await read(context, (api) => waitingIn(api, slug));
    context.output.list(
      { registrations },
      {
        columns: ["ID", "NAME", "KEY", "FROM", "AS", "GROUPS", "BY", "ASKED", "UNTIL"],
        rows: registrations.map((each) => [
          each.id,
          each.name,
          each.key_sha256.slice(0, 16),
          each.seen_from,
          roleOf(each),
          each.groups.join(", "),
          each.registration_token_id === null
            ? `user ${each.owner_id ?? "-"}`
            : `token ${each.registration_token_id}`,
          each.last_asked_at ?? "-",
          each.expires_at,
        ]),
        none: `No machine waits for approval in ${slug}.`,
      },
    );
  },
};

function roleOf({ is_lighthouse, is_relay }: { is_lighthouse: boolean; is_relay: boolean }): string {
  if (is_lighthouse) return is_relay ? "lighthouse, relay" : "lighthouse";
  return is_relay ? "relay" : "node";
}

const waitingArg = {
  ID: { type: "positional", description: "The number that the list shows" },
} as const;

/** By number only: another machine may ask with the same name meanwhile. */
async function answer(context: Context, verb: "approve" | "refuse", done: string): Promise<void> {
  const [slug = "", word = ""] = context.words;
  if (!/^\d{1,15}$/.test(word)) {
    throw new AppError("usage", `"${word}" is not the number of a registration`, {
      hint: `\`${brand.executable} admin registration list ${quoteWord(slug)}\` shows the numbers.`,
    });
  }
  const id = Number(word);
  const path = inOrg(slug, `registrations/${id}/${verb}/`);
  const answered = await write(context, Nothing, () => ({ method: "POST", path, body: {} }));
  if (answered !== undefined)
    context.output.result({ id, [done.toLowerCase()]: true }, `${done} registration ${id}\n`);
}

export const approve: Implementation = {
  notes: "The machine goes on by itself within half a minute.",
  args: { ...orgArg, ...waitingArg, ...targetFlags },
  examples: [`${brand.executable} admin registration approve acme 3`],
  run: (context) => answer(context, "approve", "Approved"),
};

export const refuse: Implementation = {
  notes: "The use of its token is free again: revoke the token too if the machine must not ask anew.",
  args: { ...orgArg, ...waitingArg, ...targetFlags },
  examples: [`${brand.executable} admin registration refuse acme 3`],
  run: (context) => answer(context, "refuse", "Refused"),
};
