// `agent admin member …` and `agent admin group …`: the members of an organization, and the groups of its nodes.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { onOrganization, onlyPlanned } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { leaverEnds, leaverFlags, revokedLines, sayAccessLeft } from "../left-access.ts";
import { ownerConfirmation, ownerIdFlag } from "../owner-flags.ts";
import { dataFlags, orgArg } from "../server-flags.ts";
import type { Args } from "../values.ts";

const emailArg: Args = { EMAIL: { type: "positional", description: "The member's e-mail address" } };
const roles = ["member", "admin", "owner"] as const;
const roleFlag = { type: "string", valueHint: roles.join("|"), description: "The role" } as const;
const groupArg: Args = { NAME: { type: "positional", description: "The group's name" } };

export const memberList: Implementation = {
  args: { ...orgArg, ...dataFlags },
  examples: [`${brand.executable} admin member list acme`],
  async run(context) {
    const { listMembers } = await import("../../server/people/members.ts");
    const members = await onOrganization(context, context.words[0] ?? "", ({ db }, org) =>
      listMembers(db, org),
    );
    const lines = members.map((each) => tableLine([each.id, each.email, each.role, each.state]));
    context.output.result({ members }, lines.join(""));
  },
};

export const memberCreate: Implementation = {
  args: { ...orgArg, ...emailArg, role: { ...roleFlag, default: "member" }, ...dataFlags },
  examples: [`${brand.executable} admin member create acme ada@example.org --role admin`],
  async run(context) {
    const [slug = "", address = ""] = context.words;
    const role = context.values.choice("role", roles) ?? "member";
    const { addMember } = await import("../../server/people/members.ts");
    const { Email } = await import("../../server/people/people.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const request = { email: parse(Email, address), role };
    if (await onlyPlanned(context, { org: slug })) return;
    const member = await onOrganization(context, slug, (admin, org) =>
      addMember(admin, org, request, { role: "owner", actor: operator }),
    );
    const text =
      member.link === undefined
        ? `${member.email} is now ${member.role} of ${slug}\n`
        : `Send this link to ${member.email}. It works once, for 72 hours:\n${member.link}\n`;
    context.output.result(member, text);
  },
};

export const memberUpdate: Implementation = {
  args: { ...orgArg, ...emailArg, role: { ...roleFlag, required: true }, ...ownerIdFlag, ...dataFlags },
  examples: [`${brand.executable} admin member update acme ada@example.org --role owner`],
  async run(context) {
    const [slug = "", address = ""] = context.words;
    const role = context.values.choice("role", roles);
    if (role === undefined) throw new AppError("usage", "Missing --role: give the new role");
    const line = ["admin", "member", "update", slug, address];
    const confirmation = ownerConfirmation(context.values, line, ["role"]);
    const { memberByEmail } = await import("../../server/people/members.ts");
    const { changeRole } = await import("../../server/offboarding/member-changes.ts");
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context, { org: slug })) return;
    const { reportOf, tokensOf } = await import("../../server/offboarding/left-access.ts");
    const { member, access } = await onOrganization(context, slug, async (admin, org) => {
      const { id } = await memberByEmail(admin.db, org, address);
      return changeRole(admin, org, id, role, { role: "owner", actor: operator, confirmation });
    });
    context.output.result(
      { ...member, tokens_left: tokensOf(access).tokens_left, ...reportOf(access) },
      `${member.email} ${member.state === "invited" ? "is invited as" : "is now"} ${member.role} of ${slug}\n${revokedLines(access)}`,
    );
    sayAccessLeft(context.output, member.email, access);
  },
};

export const memberDelete: Implementation = {
  args: { ...orgArg, ...emailArg, ...leaverFlags, ...dataFlags },
  examples: [`${brand.executable} admin member delete acme ada@example.org --revoke-tokens`],
  async run(context) {
    const [slug = "", address = ""] = context.words;
    const ends = leaverEnds(context.values);
    const { reportOf, tokensOf } = await import("../../server/offboarding/left-access.ts");
    const { memberByEmail } = await import("../../server/people/members.ts");
    const { removeMember } = await import("../../server/offboarding/member-changes.ts");
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context, { org: slug })) return;
    const { member, access } = await onOrganization(context, slug, async (admin, org) => {
      const { id } = await memberByEmail(admin.db, org, address);
      return removeMember(admin, org, id, { role: "owner", actor: operator }, ends);
    });
    context.output.result(
      { email: member.email, removed: true, ...tokensOf(access), ...reportOf(access) },
      `Removed ${member.email} from ${slug}\n${revokedLines(access)}`,
    );
    sayAccessLeft(context.output, member.email, access);
  },
};

export const groupList: Implementation = {
  args: { ...orgArg, ...dataFlags },
  examples: [`${brand.executable} admin group list acme`],
  async run(context) {
    const { listGroups } = await import("../../server/policy/groups.ts");
    const groups = await onOrganization(context, context.words[0] ?? "", ({ db }, org) =>
      listGroups(db, org),
    );
    context.output.result(
      { groups },
      groups.map((each) => tableLine([each.name, each.description])).join(""),
    );
  },
};

export const groupCreate: Implementation = {
  args: {
    ...orgArg,
    ...groupArg,
    description: { type: "string", valueHint: "TEXT", description: "A description" },
    ...dataFlags,
  },
  examples: [`${brand.executable} admin group create acme web`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const { createGroup, GroupRequest } = await import("../../server/policy/groups.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const request = parse(GroupRequest, { name, description: context.values.text("description") });
    if (await onlyPlanned(context, { org: slug })) return;
    const group = await onOrganization(context, slug, (admin, org) =>
      createGroup(admin, org, request, operator),
    );
    context.output.result(group, `Created group ${group.name}\n`);
  },
};

export const groupDelete: Implementation = {
  args: { ...orgArg, ...groupArg, ...dataFlags },
  examples: [`${brand.executable} admin group delete acme web`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const { deleteGroup } = await import("../../server/policy/groups.ts");
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context, { org: slug })) return;
    await onOrganization(context, slug, (admin, org) => deleteGroup(admin, org, name, operator));
    context.output.result({ name, deleted: true }, `Deleted group ${name}\n`);
  },
};
