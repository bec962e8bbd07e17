// `agent admin user …`: users.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { onData, onlyPlanned } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Context, Implementation } from "../command.ts";
import { leaverEnds, leaverFlags, revokedLines, sayAccessLeft } from "../left-access.ts";
import { dataFlags } from "../server-flags.ts";
import { readNamedFile, type Args } from "../values.ts";

const emailArg: Args = { EMAIL: { type: "positional", description: "The user's e-mail address" } };
const passwordFile = {
  type: "string",
  valueHint: "FILE",
  description: "Read the password from a file (- is standard input)",
} as const;

/** From a file, standard input or the terminal, where it is typed twice. */
async function readPassword({ values, system }: Context): Promise<string> {
  const file = values.text("password-file");
  if (file !== undefined) return readNamedFile("password-file", file, system);
  if (!system.stdinIsTerminal) {
    throw new AppError("usage", "Give the password with --password-file (- is standard input)");
  }
  const { askSecret } = await import("../ask.ts");
  return askSecret("Password: ", true, system);
}

async function readLogin(context: Context): Promise<{ email: string; password: string }> {
  const { Email, NewPassword } = await import("../../server/people/people.ts");
  const { parse } = await import("../../server/http/route.ts");
  const v = await import("valibot");
  const address = context.words[0] ?? "";
  return parse(v.object({ email: Email, password: NewPassword }), {
    email: address,
    password: await readPassword(context),
  });
}

export const create: Implementation = {
  args: {
    ...emailArg,
    staff: {
      type: "boolean",
      description: "Can create organizations, see all of them, and open the API documentation",
    },
    "password-file": passwordFile,
    ...dataFlags,
  },
  examples: [`${brand.executable} admin user create ada@example.org --staff`],
  async run(context) {
    const { createUser } = await import("../../server/people/people.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const login = await readLogin(context);
    const isStaff = context.values.on("staff");
    if (await onlyPlanned(context, { begins: true })) return;
    const user = await onData(context, (admin) => createUser(admin, { ...login, isStaff }, operator), {
      begins: true,
    });
    context.output.result(user, `Created user ${user.email}${user.is_staff ? " (staff)" : ""}\n`);
  },
};

export const list: Implementation = {
  args: dataFlags,
  examples: [`${brand.executable} admin user list`],
  async run(context) {
    const { listUsers } = await import("../../server/people/people.ts");
    const users = await onData(context, ({ db }) => listUsers(db));
    const lines = users.map((user) => {
      const marks = [user.is_staff ? "staff" : "", user.is_active ? "" : "disabled"].filter(
        (mark) => mark !== "",
      );
      return tableLine([user.id, user.email, ...(marks.length === 0 ? [] : [marks.join(", ")])]);
    });
    context.output.result({ users }, lines.join(""));
  },
};

function activation(word: "enable" | "disable"): Implementation {
  return {
    args: { ...emailArg, ...(word === "enable" ? {} : leaverFlags), ...dataFlags },
    examples: [`${brand.executable} admin user ${word} ada@example.org`],
    async run(context) {
      const { setActive } = await import("../../server/offboarding/user-status.ts");
      const { operator } = await import("../../server/audit/record.ts");
      const address = context.words[0] ?? "";
      if (await onlyPlanned(context)) return;
      const isEnabled = word === "enable";
      const ends = isEnabled ? {} : leaverEnds(context.values);
      const { reportOf, tokensOf } = await import("../../server/offboarding/left-access.ts");
      const access = await onData(context, (admin) => setActive(admin, address, isEnabled, operator, ends));
      context.output.result(
        {
          email: address,
          is_active: isEnabled,
          ...(isEnabled ? {} : { ...tokensOf(access), ...reportOf(access) }),
        },
        `User ${address} is ${word}d\n${revokedLines(access)}`,
      );
      sayAccessLeft(context.output, address, access);
    },
  };
}

export const enable = activation("enable");
export const disable = activation("disable");

export const password: Implementation = {
  args: { ...emailArg, "password-file": passwordFile, ...dataFlags },
  examples: [`${brand.executable} admin user password ada@example.org`],
  async run(context) {
    const { findUser, setPassword } = await import("../../server/people/people.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const login = await readLogin(context);
    if (await onlyPlanned(context)) return;
    await onData(context, async (admin) => {
      const user = await findUser(admin.db, login.email);
      await setPassword(admin, user.id, login.password, operator);
    });
    context.output.result({ email: login.email }, `User ${login.email} has a new password\n`);
  },
};
