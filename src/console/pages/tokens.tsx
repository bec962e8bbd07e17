// Tokens: for nodes that register, and for programs that use the API.

import { registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import { serviceTokensApi } from "../../api/tokens/service-tokens.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { useState } from "preact/hooks";
import { request } from "../contact/api.ts";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { currentSlug } from "../contact/me.ts";
import type { Names } from "../activity/actor.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { mayDo, nameOfKey, unused } from "../joining/token-words.ts";
import { pathOf } from "../frame/router.ts";
import { Button, Words } from "../ui/button.tsx";
import { Check, Choice, Text, useSending } from "../ui/form.tsx";
import { actionsColumn, List, textColumn } from "../ui/lists/list.tsx";
import { Confirm, FormDialog, ShownOnce } from "../ui/dialog.tsx";
import { Page } from "../ui/page.tsx";
import { When } from "../ui/parts.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { Tag } from "../ui/tag.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { numberText } from "../words/numbers.ts";

type RegistrationToken = SentOf<typeof registrationTokensApi.retrieve>;
type ServiceToken = SentOf<typeof serviceTokensApi.retrieve>;
const fromOf = ({ networks }: ServiceToken) => networks?.join(", ") ?? "everywhere";
type Kind = "registration_tokens" | "service_tokens";
type Token = RegistrationToken | ServiceToken;
type Revoked = { kind: Kind; token: Token; name: string };

/** When and by whom a token was made. A user who is no member has no name here; the events of the token have the number. */
function madeColumns<T extends Token>(slug: string, kind: Kind, names: Names): Column<T>[] {
  // 0 is the id of no user.
  const by = ({ created_by }: T) => names.get(created_by ?? 0) ?? "see Activity";
  return [
    timeColumn("made", "Made", ({ created_at }) => created_at),
    {
      key: "by",
      title: "By",
      width: 2,
      text: by,
      // The names come after the tokens: that is no change to be marked.
      ...(names.size === 0 ? { isRestless: true as const } : {}),
      cell: (token) => (
        // Events have the singular: registration_token/7.
        <a href={`${pathOf(slug, "activity")}?subject=${kind.slice(0, -1)}/${token.id}`} title={by(token)}>
          <bdi>{by(token)}</bdi>
        </a>
      ),
    },
  ];
}

export function Tokens() {
  const slug = currentSlug.value ?? "";
  const [revoked, setRevoked] = useState<Revoked>();
  const [isMaking, setMaking] = useState(false);
  const names = useMemberNames(slug);
  const actions = <T extends Token>(kind: Kind, nameOf: (token: T) => string): Column<T> =>
    actionsColumn(1, (token) => (
      <Button
        isSmall={true}
        kind="ghost"
        label={`Revoke ${nameOf(token)}`}
        onClick={() => setRevoked({ kind, token, name: nameOf(token) })}
      >
        Revoke
      </Button>
    ));
  return (
    <Page
      title="Keys and tokens"
      actions={
        <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
          <Words first="Create" rest="a service token" />
        </Button>
      }
    >
      <List
        label="Registration tokens"
        title="Join keys for nodes"
        path={apiPath(registrationTokensApi.list, { slug })}
        columns={[
          textColumn("name", "Name", 2, nameOfKey),
          groupsColumn,
          textColumn(
            "used",
            "Used",
            1.5,
            ({ used, uses }: RegistrationToken) => `${used} of ${numberText(uses)}`,
          ),
          ...madeColumns<RegistrationToken>(slug, "registration_tokens", names),
          timeColumn<RegistrationToken>("expires", "Ends", ({ expires_at }) => expires_at),
          actions("registration_tokens", nameOfKey),
        ]}
        keyOf={({ id }: RegistrationToken) => id}
        empty="None."
        command={["token", "list", slug]}
      >
        <Button isSmall={true} href={pathOf(slug, "nodes", "add")}>
          <Words first="Add" rest="a node" />
        </Button>
      </List>
      <List
        label="Service tokens"
        title="Service tokens for programs"
        part="service-"
        path={apiPath(serviceTokensApi.list, { slug })}
        columns={[
          textColumn("name", "Name", 2, ({ name }: ServiceToken) => name),
          textColumn<ServiceToken>("may", "It may", 3, mayDo),
          textColumn("networks", "From", 1.5, fromOf),
          ...madeColumns<ServiceToken>(slug, "service_tokens", names),
          timeColumn<ServiceToken>("used", "Last used", ({ last_used_at }) => last_used_at, {
            width: 1.5,
            never: unused,
          }),
          timeColumn<ServiceToken>("expires", "Ends", ({ expires_at }) => expires_at),
          actions("service_tokens", ({ name }: ServiceToken) => name),
        ]}
        keyOf={({ id }: ServiceToken) => id}
        empty="None."
        command={["service-token", "list", slug]}
      />
      {isMaking ? <NewServiceToken close={() => setMaking(false)} /> : null}
      {revoked === undefined ? null : <Revoke {...revoked} close={() => setRevoked(undefined)} />}
    </Page>
  );
}

const groupsColumn: Column<RegistrationToken> = {
  ...textColumn("groups", "Groups", 2, ({ groups }) => groups.join(", ") || "none"),
  cell: ({ groups }) =>
    groups.length === 0 ? (
      <span class="faint">none</span>
    ) : (
      <span title={groups.join(", ")}>
        {groups.map((each) => (
          <Tag key={each} text={each} />
        ))}
      </span>
    ),
};

function Revoke({ kind, token, name, close }: Revoked & { close(): void }) {
  const slug = currentSlug.value ?? "";
  const [endsNodes, setEndsNodes] = useState(false);
  const { id, created_at, expires_at } = token;
  const api = kind === "service_tokens" ? serviceTokensApi : registrationTokensApi;
  const query = { revoke_nodes: `${endsNodes}` } as const;
  return (
    <Confirm
      title={`Revoke ${name}?`}
      action={`Revoke ${name}`}
      typeName={kind === "service_tokens" ? name : undefined}
      effect={
        <>
          <p>
            {"role" in token ? (
              <>
                It may {mayDo(token)}, from {fromOf(token)}. Last used{" "}
                <When at={token.last_used_at} never={unused(token)} />, made
              </>
            ) : (
              "Made"
            )}{" "}
            <When at={created_at} />, ends <When at={expires_at} />.{" "}
            {kind === "service_tokens"
              ? "Programs with this token are refused at once."
              : "No node registers with it any more, not even one that waits for approval, or was approved and has not come back."}{" "}
            It cannot be restored; a new one can be made.
          </p>
          {/* With the role member, a service token registers no nodes. */}
          {"role" in token && token.role === "member" ? null : (
            <Check label="Also revoke the nodes that came with it" checked={endsNodes} set={setEndsNodes} />
          )}
        </>
      }
      close={close}
      command={[
        kind === "service_tokens" ? "service-token" : "token",
        "revoke",
        slug,
        id,
        ...(endsNodes ? ["--revoke-nodes"] : []),
      ]}
      sends={request(api.revoke, { slug, id }, query)}
      changes={apiPath(api.list, { slug })}
    />
  );
}

const scopes = [
  ["read", "read: reads everything, changes nothing"],
  ["nodes", "nodes: nodes, their aliases and paths"],
  ["policy", "policy: rules, groups and their tests"],
  ["webhooks", "webhooks: webhooks and their deliveries"],
] as const;
const lifetimes = [
  ["30d", "30 days"],
  ["90d", "90 days"],
  ["365d", "a year"],
] as const;

function NewServiceToken({ close }: { close(): void }) {
  const slug = currentSlug.value ?? "";
  const [name, setName] = useState("");
  const [role, setRole] = useState<"member" | "admin">("member");
  const [expires, setExpires] = useState("90d");
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set(["read"]));
  const [networks, setNetworks] = useState("");
  const [secret, setSecret] = useState<string>();
  const from = partsOf(networks);
  const body = {
    name,
    role,
    expires_in: expires,
    scopes: scopes.map(([scope]) => scope).filter((scope) => chosen.has(scope)),
    ...(from.length === 0 ? {} : { networks: from }),
  };
  const sends = request(serviceTokensApi.create, { slug }, body);
  const form = useSending(sends, apiPath(serviceTokensApi.list, { slug }), ({ token }) => setSecret(token));
  const toggle = (scope: string) => (isOn: boolean) =>
    setChosen(new Set([...chosen, scope].filter((each) => isOn || each !== scope)));
  if (secret !== undefined)
    return (
      <ShownOnce title={`The token ${name}`} secret={secret} close={close}>
        Keep it where the program reads its secrets.
      </ShownOnce>
    );
  return (
    <FormDialog
      title="Create a service token"
      close={close}
      hasUnsaved={name !== ""}
      action="Create the token"
      form={form}
      disabled={chosen.size === 0}
      shown={["name", "networks"]}
      command={[
        "service-token",
        "create",
        slug,
        name || "NAME",
        "--role",
        role,
        "--expires",
        expires,
        ...body.scopes.flatMap((scope) => ["--scope", scope]),
        ...from.flatMap((network) => ["--network", network]),
      ]}
    >
      <Text
        label="Name"
        errors={form.error?.fields["name"]}
        value={name}
        set={setName}
        control={{ required: true, maxlength: 100 }}
      />
      <Choice
        label="Role"
        value={role}
        set={setRole}
        choices={[
          ["member", "Member: reads what the boxes below allow"],
          ["admin", "Administrator: changes what the boxes below allow"],
        ]}
      />
      <fieldset>
        <legend>It may use (one at least)</legend>
        {scopes.map(([scope, label]) => (
          <Check key={scope} label={label} checked={chosen.has(scope)} set={toggle(scope)} />
        ))}
      </fieldset>
      <Text
        label="Only from these networks"
        help="Separated by commas, such as 192.0.2.0/24. Empty: from everywhere."
        errors={sentencesOf(form.error?.fields, "networks", from)}
        value={networks}
        set={setNetworks}
      />
      <Choice label="Valid for" value={expires} set={setExpires} choices={lifetimes} />
    </FormDialog>
  );
}
