// `agent admin registration …`: machines that wait for approval.

import { registrationsApi } from "../../../api/registrations.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { isNumber } from "../lookup.ts";
import { read, write, type Api, type Prepared } from "../api.ts";
import { switchFlag, wordArg } from "../../values.ts";

const registrationsIn = (api: Api, slug: string, { isApproved }: { isApproved: boolean }) =>
  api.all(registrationsApi.list, { slug }, isApproved ? { state: "approved" } : {});
const approvedFlag = (description: string) => ({ approved: switchFlag(description) }) as const;

export const list: Implementation = {
  notes: `Compare KEY with what the machine shows. \`${brand.executable} admin org update ORG --approval all\` makes new machines wait.`,
  args: {
    ...orgArg,
    ...approvedFlag("Those that were approved and have not come back yet"),
  },
  examples: [
    `${brand.executable} admin registration list acme`,
    `${brand.executable} admin registration list acme --approved`,
  ],
  async run(context) {
    const [slug = ""] = context.words;
    const isApproved = context.values.on("approved");
    const registrations = await read(context, (api) => registrationsIn(api, slug, { isApproved }));
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
        none: isApproved
          ? `Every machine that was approved in ${slug} has come back.`
          : `No machine waits for approval in ${slug}.`,
      },
    );
  },
};

function roleOf({ is_lighthouse, is_relay }: { is_lighthouse: boolean; is_relay: boolean }): string {
  if (is_lighthouse) return is_relay ? "lighthouse, relay" : "lighthouse";
  return is_relay ? "relay" : "node";
}

const waitingArg = {
  ID: wordArg("The number that the list shows"),
};

/**
 * Approves or refuses the registration of the word ID. It is named by its number only: another machine may ask with the same
 * name meanwhile.
 */
async function answer(
  context: Context,
  outcome: "Approved" | "Refused",
  changeOf: (params: { slug: string; id: number }) => Prepared<undefined>,
): Promise<void> {
  const [slug = "", word = ""] = context.words;
  if (!isNumber(word)) {
    throw new AppError("usage", `"${word}" is not the number of a registration`, {
      hint: `\`${brand.executable} admin registration list ${quoteWord(slug)}\` shows the numbers.`,
    });
  }
  const id = Number(word);
  const answered = await write(context, () => changeOf({ slug, id }));
  if (answered !== undefined)
    context.output.result({ id, [outcome.toLowerCase()]: true }, `${outcome} registration ${id}\n`);
}

export const approve: Implementation = {
  notes: "The machine goes on by itself within half a minute.",
  args: { ...orgArg, ...waitingArg },
  examples: [`${brand.executable} admin registration approve acme 3`],
  run: (context) => answer(context, "Approved", (params) => request(registrationsApi.approve, params)),
};

export const refuse: Implementation = {
  notes: `The use of its token is free again: revoke the token too if the machine must not ask anew.
An approved machine that has come back is a node: \`${brand.executable} admin node revoke\`.`,
  args: {
    ...orgArg,
    ...waitingArg,
    ...approvedFlag("Withdraw the approval of a machine that has not come back yet"),
  },
  examples: [
    `${brand.executable} admin registration refuse acme 3`,
    `${brand.executable} admin registration refuse acme 3 --approved`,
  ],
  run(context) {
    if (!context.values.on("approved"))
      return answer(context, "Refused", (params) => request(registrationsApi.refuse, params));
    const effect = "withdraw the approval of a machine that has not come back, and refuse it";
    return answer(context, "Refused", (params) => ({
      ...request(registrationsApi.refuse, params, { state: "approved" }),
      effect,
    }));
  },
};
