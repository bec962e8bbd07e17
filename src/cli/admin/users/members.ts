// `agent admin member …` and `agent admin invitation …`: the members of an organization, and its open invitations.

import { roles } from "../../../api/endpoint.ts";
import { invitationHours, membersApi } from "../../../api/members.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Context, Implementation } from "../../command.ts";
import { leaverEnds, leaverFlags, resultOfEnding, tokensOf } from "./left-access.ts";
import { confirmable, ownerIdFlag } from "../../join/owner-flags.ts";
import { orgArg } from "../../server/server-flags.ts";
import type { Cell } from "../../table.ts";
import { given } from "../../../base/given.ts";
import { valueFlag, wordArg } from "../../values.ts";
import { read, write, type Api } from "../api.ts";
import { checked, memberByEmail } from "../lookup.ts";

const emailArg = { EMAIL: wordArg("The member's e-mail address") };
const roleFlag = valueFlag(
  roles.join("|"),
  "member reads, admin changes nodes, groups, rules and tokens, owner does everything",
);

const membersOf = (api: Api, slug: string) => api.all(membersApi.list, { slug });

export const memberList: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin member list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const members = await read(context, (api) => membersOf(api, slug));
    const now = context.system.now();
    context.output.list(
      { members },
      {
        columns: ["EMAIL", "ROLE", "STATE", "SINCE"],
        rows: members.map((each) => [each.email, each.role, stateOf(each, now), each.created_at]),
        none: `${slug} has no members.`,
      },
    );
  },
};

type Invited = { state: string; expires_at: string | null; is_disabled?: boolean | undefined };

function stateOf({ state, expires_at, is_disabled }: Invited, now: number): Cell {
  if (is_disabled === true) return { text: "disabled", mark: "bad" };
  if (state !== "invited") return state;
  const isOver = expires_at !== null && Date.parse(expires_at) <= now;
  return isOver
    ? { text: "invitation expired", mark: "bad" }
    : { text: `invited until ${expires_at ?? ""}`, mark: "wait" };
}

/** Runs `member create` and `invitation create`, which are the same: the control plane decides whether a link is needed. */
async function addMember(context: Context): Promise<void> {
  const [slug = "", address = ""] = context.words;
  const role = context.values.choice("role", roles) ?? "member";
  const body = await checked(membersApi.create.body, { email: address, role });
  const member = await write(context, () => request(membersApi.create, { slug }, body));
  if (member === undefined) return;
  let text = `${member.email} is now ${member.role} of ${slug}\n`;
  if (member.link !== undefined)
    text = `Send this link to ${member.email}. It works once, for ${invitationHours} hours:\n${member.link}\n`;
  if (member.is_emailed === true)
    text = `An invitation was sent to ${member.email}. It works once, for ${invitationHours} hours\n`;
  context.output.result(member, text);
}

export const memberCreate: Implementation = {
  args: { ...orgArg, ...emailArg, role: { ...roleFlag, default: "member" } },
  examples: [`${brand.executable} admin member create acme ada@example.org --role admin`],
  run: addMember,
};

export const memberUpdate: Implementation = {
  args: { ...orgArg, ...emailArg, role: { ...roleFlag, required: true }, ...ownerIdFlag },
  examples: [`${brand.executable} admin member update acme ada@example.org --role owner`],
  async run(context) {
    const { words, values, output } = context;
    const [slug = "", address = ""] = words;
    const role = values.choice("role", roles);
    if (role === undefined) throw new AppError("usage", "Missing --role: give the new role");
    const ownerId = values.integer("owner-id", 1, Number.MAX_SAFE_INTEGER);
    const body = { role, ...given({ owner_id: ownerId }) };
    // If the new owner has to be confirmed, the error names this line to repeat, with --role and --owner-id.
    const changed = await confirmable(values, ["admin", "member", "update", slug, address], ["role"], () =>
      write(context, async (api) => {
        const { id } = await memberByEmail(api, slug, address);
        return request(membersApi.update, { slug, id }, body);
      }),
    );
    if (changed === undefined) return;
    const fields = { ...changed, tokens_left: tokensOf(changed).tokens_left };
    const done = `${changed.email} ${changed.state === "invited" ? "is invited as" : "is now"} ${changed.role} of ${slug}`;
    resultOfEnding(output, { subject: changed.email, fields, done }, changed);
  },
};

export const memberDelete: Implementation = {
  args: { ...orgArg, ...emailArg, ...leaverFlags },
  examples: [`${brand.executable} admin member delete acme ada@example.org --revoke-tokens`],
  async run(context) {
    const [slug = "", address = ""] = context.words;
    const { revoke_nodes, revoke_tokens } = leaverEnds(context.values);
    const query = {
      revoke_nodes: `${revoke_nodes}`,
      revoke_tokens: `${revoke_tokens}`,
      report: "true",
    } as const;
    let email = address;
    const report = await write(context, async (api) => {
      const member = await memberByEmail(api, slug, address);
      email = member.email;
      const effect = `remove ${email} from ${slug}`;
      return { ...request(membersApi.delete, { slug, id: member.id }, query), effect };
    });
    // Undefined: only planned. Null: an answer without a body.
    if (report == null) return;
    const fields = { email, removed: true, ...tokensOf(report) };
    resultOfEnding(context.output, { subject: email, fields, done: `Removed ${email} from ${slug}` }, report);
  },
};

export const invitationList: Implementation = {
  notes:
    "Open invitations. A link is shown only once; `invitation create` again makes a new one and ends the old one.",
  args: orgArg,
  examples: [`${brand.executable} admin invitation list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const members = await read(context, (api) => membersOf(api, slug));
    const invitations = members.filter(({ state }) => state === "invited");
    const now = context.system.now();
    context.output.list(
      { invitations },
      {
        columns: ["EMAIL", "ROLE", "STATE"],
        rows: invitations.map((each) => [each.email, each.role, stateOf(each, now)]),
        none: `${slug} has no open invitations.`,
      },
    );
  },
};

export const invitationCreate: Implementation = {
  notes: "A user that the operator created joins at once, without a link.",
  args: { ...orgArg, ...emailArg, role: { ...roleFlag, default: "member" } },
  examples: [`${brand.executable} admin invitation create acme ada@example.org`],
  run: addMember,
};

export const invitationDelete: Implementation = {
  args: { ...orgArg, ...emailArg },
  examples: [`${brand.executable} admin invitation delete acme ada@example.org`],
  async run(context) {
    const [slug = "", address = ""] = context.words;
    const gone = await write(context, async (api) => {
      const { id, email, state } = await memberByEmail(api, slug, address);
      const effect = `end the invitation of ${email}`;
      if (state === "invited") return { ...request(membersApi.delete, { slug, id }), effect };
      throw new AppError("conflict", `${email} is a member of ${slug}, not invited`, {
        hint: `To remove a member: \`${brand.executable} admin member delete ${slug} EMAIL\`.`,
      });
    });
    if (gone === undefined) return;
    context.output.result({ email: address, deleted: true }, `Deleted the invitation of ${address}\n`);
  },
};
