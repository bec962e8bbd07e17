// `agent admin session …`: the browsers and command lines in which a user is signed in: your own, or those of a member.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Context, Implementation } from "../../command.ts";
import type { Args } from "../../values.ts";
import { request } from "../../../api/request.ts";
import { memberSessionsApi, ownSessionsApi } from "../../../api/sessions.ts";
import { read, write, type Api } from "../api.ts";
import { idOf, memberByEmail } from "../lookup.ts";
import { targetFlags } from "../target.ts";

const notes = `Without --user: your own sessions, those of the user who is signed in with \`${brand.executable} login\`. With --org and --user: those of
a member, for administrators of the organization. A session is for all organizations of its user, so it ends in all of
them. NODES lists the nodes whose machine proved that the command line is signed in there. When one of them is revoked,
the session ends.`;

const memberFlags: Args = {
  org: { type: "string", valueHint: "ORG", description: "With --user: an organization of that user" },
  user: { type: "string", valueHint: "EMAIL", description: "A member of the organization (default: you)" },
};

/** The member that the flags name; undefined: your own sessions. */
function memberOfFlags({ values }: Context): { slug: string; email: string } | undefined {
  const [slug, email] = [values.text("org"), values.text("user")];
  if (slug === undefined && email === undefined) return undefined;
  if (slug === undefined || email === undefined)
    throw new AppError("usage", "Give --org and --user together, or neither for your own sessions");
  return { slug, email };
}

async function memberParams(api: Api, { slug, email }: { slug: string; email: string }) {
  return { slug, id: (await memberByEmail(api, slug, email)).id };
}

export const list: Implementation = {
  notes,
  args: { ...memberFlags, ...targetFlags },
  examples: [
    `${brand.executable} admin session list`,
    `${brand.executable} admin session list --org acme --user ada@example.org`,
  ],
  async run(context) {
    const member = memberOfFlags(context);
    const sessions = await read(context, async (api) =>
      member === undefined
        ? api.all(ownSessionsApi.list, {})
        : api.all(memberSessionsApi.list, await memberParams(api, member)),
    );
    context.output.list(
      { sessions },
      {
        columns: ["ID", "KIND", "DEVICE", "ADDRESS", "SINCE", "LAST USE", "NODES"],
        rows: sessions.map((each) => [
          each.id,
          // Older control planes list browsers only.
          each.kind === "command_line" ? "command line" : "browser",
          each.device,
          each.address,
          each.created_at,
          each.last_used_at,
          (each.nodes ?? []).map(({ org_slug, name }) => `${name} (${org_slug})`).join(", "),
        ]),
        none: `${member?.email ?? "You"} ${member === undefined ? "are" : "is"} signed in nowhere.`,
      },
    );
  },
};

export const revoke: Implementation = {
  notes,
  args: {
    ID: {
      type: "positional",
      required: false,
      description: `Number from \`${brand.executable} admin session list\``,
    },
    all: { type: "boolean", description: "With --user: sign the user out everywhere" },
    ...memberFlags,
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin session revoke 7`,
    `${brand.executable} admin session revoke --all --org acme --user ada@example.org`,
  ],
  async run(context) {
    const [word] = context.words;
    const member = memberOfFlags(context);
    const isAll = context.values.on("all");
    if ((word === undefined) !== isAll || (isAll && member === undefined))
      throw new AppError("usage", "Give the ID of a session, or --all with --org and --user");
    const what = isAll ? `all sessions of ${member?.email}` : `session ${word}`;
    const gone = await write(context, async (api) => ({
      ...(await endRequest(api, word, member)),
      effect: `end ${what}`,
    }));
    if (gone === undefined) return;
    if (word === undefined)
      return context.output.result(
        { user: member?.email, all: true },
        `All sessions of ${member?.email} have ended\n`,
      );
    context.output.result({ id: Number(word) }, `Session ${word} has ended\n`);
  },
};

/** The request that ends the session of this number, or all of a member. */
async function endRequest(api: Api, word: string | undefined, member: ReturnType<typeof memberOfFlags>) {
  const params = member === undefined ? undefined : await memberParams(api, member);
  if (word === undefined && params !== undefined) return request(memberSessionsApi.deleteAll, params);
  // Sessions have no names: anything but a number is not found.
  const session = await idOf(word ?? "", {
    what: "session",
    listing: "session list",
    list: async () => [],
    nameOf: () => null,
  });
  if (params === undefined) return request(ownSessionsApi.delete, { id: session });
  return request(memberSessionsApi.delete, { ...params, session });
}
