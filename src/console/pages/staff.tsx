// Pages for staff: the organizations and users of this control plane.

import { apiPath } from "../../api/endpoint.ts";
import { organizationsApi, type Organization } from "../../api/organizations.ts";
import { useState } from "preact/hooks";
import { minPasswordLength, usersApi, userSettings, type User } from "../../api/users.ts";
import { request } from "../contact/api.ts";
import { me, organizations, readMe } from "../contact/me.ts";
import { freeNetwork, overlapped } from "../node/overlay-networks.ts";
import { counted } from "./removed-words.ts";
import { useResource } from "../contact/resource.ts";
import { go, pathOf } from "../frame/router.ts";
import { Button, Words } from "../ui/button.tsx";
import { Check, Text, useSending } from "../ui/form.tsx";
import { actionsColumn, List, stateColumn, textColumn } from "../ui/lists/list.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Page } from "../ui/page.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { InstallationProviders } from "../providers/installation-providers.tsx";
import { OwnerNumber, useEnding } from "./user-fields.tsx";

const organizationsPath = apiPath(organizationsApi.list, {});
const usersPath = apiPath(usersApi.list, {});

export function Organizations() {
  const [isMaking, setMaking] = useState(false);
  return (
    <Page
      title="Organizations"
      actions={
        <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
          <Words first="Create" rest="an organization" />
        </Button>
      }
      terminal={{ command: ["org", "list"], call: ["GET", organizationsPath] }}
    >
      <List
        label="Organizations"
        path={organizationsPath}
        columns={[
          textColumn("slug", "Slug", 2, ({ slug }: Organization) => slug),
          textColumn("name", "Name", 3, ({ name }: Organization) => name),
          textColumn("network", "Network", 2, ({ network }: Organization) => network),
          textColumn("nodes", "Nodes", 1, ({ node_count }: Organization) => `${node_count}`),
          textColumn("role", "Your role", 1, ({ role }: Organization) => role ?? "staff, reads"),
          timeColumn("created", "Created", ({ created_at }: Organization) => created_at),
        ]}
        keyOf={({ id }: Organization) => id}
        linkOf={({ slug }: Organization) => pathOf(slug)}
        empty="None yet. An organization is one overlay network with its nodes and members."
      />
      {isMaking ? <NewOrganization close={() => setMaking(false)} /> : null}
    </Page>
  );
}

function NewOrganization({ close }: { close(): void }) {
  const [slug, setSlug] = useState("");
  const [network, setNetwork] = useState(() => freeNetwork(organizations.value));
  const [owner, setOwner] = useState(me.value?.email ?? "");
  const [ownerId, setOwnerId] = useState("");
  const other = overlapped(network, organizations.value);
  const body = {
    slug,
    network,
    // Without a named owner it is the caller, whose address need not be confirmed.
    ...(owner === me.value?.email ? {} : { owner }),
    ...(ownerId === "" ? {} : { owner_id: Number(ownerId) }),
  };
  const form = useSending(request(organizationsApi.create, {}, body), organizationsPath, async () => {
    await readMe();
    close();
    go(pathOf(slug));
  });
  return (
    <FormDialog
      title="Create an organization"
      close={close}
      hasUnsaved={slug !== ""}
      action="Create the organization"
      form={form}
      shown={["slug", "network", "owner"]}
      command={["org", "create", slug, "--network", network, "--owner", owner]}
    >
      <Text
        label="Slug"
        help="Lower-case letters, digits and hyphens. It is part of addresses and stays."
        errors={form.error?.fields["slug"]}
        value={slug}
        set={setSlug}
        control={{ required: true, autocomplete: "off" }}
      />
      <Text
        label="Network"
        help="Of the overlay. Choose one that no machine uses otherwise; it stays."
        errors={form.error?.fields["network"]}
        value={network}
        set={setNetwork}
        control={{ required: true, autocomplete: "off" }}
      />
      <div class="limited" role="status">
        {other && (
          <>
            It overlaps the network of <bdi>{other.slug}</bdi>: a machine cannot be in both organizations.
          </>
        )}
      </div>
      <Text
        label="Owner"
        help="The e-mail address of a user of this control plane."
        errors={form.error?.fields["owner"]}
        value={owner}
        set={setOwner}
        control={{ type: "email", required: true, autocomplete: "off" }}
      />
      <OwnerNumber error={form.error} value={ownerId} set={setOwnerId} />
    </FormDialog>
  );
}

export function Users() {
  const [asked, setAsked] = useState<User | "new">();
  const [shown, setShown] = useState<User>();
  const part = usePart(shown && parts.administration);
  const close = () => setAsked(undefined);
  const columns: readonly Column<User>[] = [
    textColumn("email", "E-mail", 4, ({ email }) => email),
    textColumn("id", "Number", 1, ({ id }) => `${id}`),
    textColumn("staff", "Staff", 1, ({ is_staff }) => (is_staff ? "yes" : "no")),
    stateColumn(1, ({ is_active }) => (is_active ? ["online", "active"] : ["revoked", "disabled"])),
    timeColumn("seen", "Last sign-in", ({ last_login_at }) => last_login_at),
    timeColumn("created", "Created", ({ created_at }) => created_at),
    actionsColumn(2, (user) => (
      <>
        <Button kind="ghost" isSmall={true} onClick={() => setShown(user)}>
          Sessions
          <span class="unseen"> of {user.email}</span>
        </Button>
        <Button kind="ghost" isSmall={true} onClick={() => setAsked(user)}>
          {user.is_active ? "Disable" : "Enable"}
          <span class="unseen"> {user.email}</span>
        </Button>
      </>
    )),
  ];
  return (
    <Page
      title="Users"
      actions={
        <Button kind="primary" icon="plus" onClick={() => setAsked("new")}>
          <Words first="Create" rest="a user" />
        </Button>
      }
      terminal={{ command: ["user", "list"], call: ["GET", usersPath] }}
    >
      <List
        label="Users"
        path={usersPath}
        columns={columns}
        keyOf={({ id }: User) => id}
        empty="There are no users."
      />
      <InstallationProviders />
      {asked === "new" ? <NewUser close={close} /> : null}
      {typeof asked === "object" ? <Activation user={asked} close={close} /> : null}
      {shown && part ? <part.UserSessions user={shown} close={() => setShown(undefined)} /> : null}
    </Page>
  );
}

function NewUser({ close }: { close(): void }) {
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [isStaff, setStaff] = useState(false);
  const body = { email, password, is_staff: isStaff };
  const form = useSending(request(usersApi.create, {}, body), usersPath, close);
  return (
    <FormDialog
      title="Create a user"
      close={close}
      hasUnsaved={email !== ""}
      action="Create the user"
      form={form}
      shown={["email", "password"]}
      command={["user", "create", email, ...(isStaff ? [`--${userSettings.is_staff.flag}`] : [])]}
    >
      <p class="quiet">
        Owners can also invite members to their organizations. Invited members choose their own password.
      </p>
      <Text
        label="E-mail"
        errors={form.error?.fields["email"]}
        value={email}
        set={setEmail}
        control={{ type: "email", required: true, autocomplete: "off" }}
      />
      <Text
        label="Password"
        help={`At least ${minPasswordLength} characters.`}
        errors={form.error?.fields["password"]}
        value={password}
        set={setPassword}
        control={{
          type: "password",
          required: true,
          minlength: minPasswordLength,
          autocomplete: "new-password",
        }}
      />
      <p>
        <Check label={userSettings.is_staff.label} checked={isStaff} set={setStaff} />
      </p>
    </FormDialog>
  );
}

function Activation({ user, close }: { user: User; close(): void }) {
  const { fields, body: ending, flags } = useEnding();
  const path = apiPath(usersApi.retrieve, { id: user.id });
  const isEnding = user.is_active;
  const { data } = useResource(isEnding ? path : "");
  /** What the user could still use. */
  const left = data?.access_left ?? [];
  const body = { is_active: !isEnding, ...(isEnding ? ending : {}) };
  const verb = isEnding ? "Disable" : "Enable";
  return (
    <Confirm
      title={`${verb} ${user.email}?`}
      action={`${verb} ${user.email}`}
      isDanger={isEnding}
      effect={
        isEnding ? (
          <>
            <p>
              {user.id === me.value?.id
                ? "This is you: you are signed out, and only other staff can enable you again."
                : "All sessions end within seconds, and the user cannot sign in. It can be enabled again."}
            </p>
            <p role="status">
              {data &&
                (left.length === 0 ? "They have no node and no token." : `Still working: ${counted(left)}.`)}
            </p>
            {data !== undefined && left.length === 0 ? null : fields}
          </>
        ) : (
          "They can sign in again. Nodes and tokens that were revoked stay so."
        )
      }
      close={close}
      command={["user", verb.toLowerCase(), user.email, ...(isEnding ? flags : [])]}
      sends={request(usersApi.update, { id: user.id }, body)}
      changes={usersPath}
    />
  );
}
