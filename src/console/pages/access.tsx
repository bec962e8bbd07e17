// Which machines may reach which others: the rules, their sum, and the rule that decides.

import { apiPath } from "../../api/endpoint.ts";
import { policyApi } from "../../api/policy.ts";
import "../core.ts";
import { effect } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { awaySince, call } from "../api.ts";
import { Explainer } from "../access/explainer.tsx";
import { failText } from "../access/class-words.ts";
import { Faults } from "../access/faults.tsx";
import { draftOf, forget, load, undoEvent, type Draft } from "../access/draft.ts";
import type { Saved } from "../access/saved.ts";
import { GroupMatrix } from "../access/group-matrix.tsx";
import { Preview, SaveBar } from "../access/preview.tsx";
import { RuleTable } from "../access/rule-table.tsx";
import { PolicyTests } from "../access/tests.tsx";
import { isLive, onEvent } from "../live.ts";
import { mayAdminister, slug } from "../me.ts";
import { query, setQuery } from "../router.ts";
import { Confirm } from "../ui/dialog.tsx";
import { Failure, FromTerminal, Loading, When } from "../ui/parts.tsx";

export function Access() {
  const draft = draftOf(slug.value ?? "");
  useSaved(draft);
  const saved = draft.saved.value;
  const mayEdit = mayAdminister.value && saved?.policy.by_file === false && saved.policy.unconfirmed === null;
  const undone = Number(query.value.get("undo") ?? 0);
  useEffect(() => {
    if (undone === 0 || !mayEdit) return;
    // Only once: otherwise the draft would be applied to itself.
    setQuery({ undo: undefined });
    void undoEvent(draft, undone);
  }, [draft, undone, mayEdit]);
  if (saved === undefined) {
    const error = draft.error.value;
    return (
      <>
        <h1>Access</h1>
        {error === undefined ? <Loading /> : <Failure error={error} retry={() => void load(draft)} />}
      </>
    );
  }
  return (
    <>
      <div class="title">
        <h1>Access</h1>
        <button type="button" onClick={toExplainer}>
          May one machine reach another?
        </button>
      </div>
      <Notices draft={draft} saved={saved} />
      <Undoing sentences={draft.undo.value} />
      <RuleTable draft={draft} saved={saved} mayEdit={mayEdit} />
      {mayEdit || draft.rules.value !== undefined ? (
        <>
          <Preview draft={draft} saved={saved} />
          <SaveBar draft={draft} />
        </>
      ) : null}
      <Explainer saved={saved} slug={draft.slug} isEdited={draft.rules.value !== undefined} />
      <GroupMatrix saved={saved.rules} draft={draft.rules.value} />
      <PolicyTests draft={draft} saved={saved} mayEdit={mayEdit} />
    </>
  );
}

/** Reads the rules as they are saved, again when something may have changed them. */
function useSaved(draft: Draft): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isFirst = true;
    // The stream has no events from before it was open, nor from while the control plane was away.
    const end = effect(() => {
      const isBack = isLive.value && awaySince.value === undefined;
      if (isBack || isFirst) void load(draft);
      isFirst = false;
    });
    const leave = onEvent(({ type }) => {
      if (!/^(rule|policy|group|node)\./.test(type)) return;
      clearTimeout(timer);
      timer = setTimeout(() => void load(draft), 300);
    });
    return () => {
      clearTimeout(timer);
      end();
      leave();
      forget(draft);
    };
  }, [draft]);
}

function Undoing({ sentences }: { sentences: readonly string[] }) {
  useEffect(() => {
    if (sentences.length > 0)
      document.querySelector(".rules :is(.new, .changed, .deleted)")?.scrollIntoView({ block: "nearest" });
  }, [sentences]);
  return (
    <div role="status" class={sentences.length === 0 ? "" : "notice"}>
      {sentences.map((sentence) => (
        <p key={sentence}>
          <bdi>{sentence}</bdi>
        </p>
      ))}
    </div>
  );
}

/** Links to the explainer, which is below the rules, of which there may be many. */
function toExplainer(): void {
  const title = document.getElementById("explainer");
  title?.scrollIntoView();
  title?.parentElement?.querySelector("input")?.focus({ preventScroll: true });
}

type NoticesProps = { draft: Draft; saved: Saved };

/** Why the rules cannot be edited here, and tests that already fail. */
function Notices({ draft, saved: { policy } }: NoticesProps) {
  const [asked, answer] = useState<"confirm" | "revert" | undefined>(undefined);
  const { unconfirmed, tests } = policy;
  const endpoint = asked === "revert" ? policyApi.revert : policyApi.confirm;
  const run = async () => {
    await call(endpoint, { slug: draft.slug });
    await load(draft);
  };
  const close = () => answer(undefined);
  return (
    <>
      {policy.by_file ? (
        <p class="notice">
          These rules are changed by their policy file only:{" "}
          <code>agent admin policy apply {draft.slug} FILE</code>
        </p>
      ) : null}
      {mayAdminister.value ? null : (
        <p class="notice">Administrators of the organization change rules. You can read them.</p>
      )}
      {unconfirmed === null ? null : (
        <div class="notice" role="status">
          <p>
            <bdi>{unconfirmed.by}</bdi> has applied a policy that goes back <When at={unconfirmed.until} />{" "}
            unless it is confirmed. Until then, the rules stay as they are.
          </p>
          {mayAdminister.value ? (
            <div class="actions">
              <button type="button" onClick={() => answer("confirm")}>
                Keep it
              </button>
              <button type="button" onClick={() => answer("revert")}>
                Take it back
              </button>
            </div>
          ) : null}
        </div>
      )}
      {tests.failing.length === 0 ? null : (
        <Faults
          title={`${failText(tests.failing.length, tests.count)} with the saved rules`}
          lines={tests.failing}
        />
      )}
      {asked === undefined ? null : (
        <Confirm
          title={asked === "confirm" ? "Keep this policy?" : "Take this policy back?"}
          action={asked === "confirm" ? "Keep the policy" : "Take the policy back"}
          isDanger={false}
          effect={
            <>
              <p>
                {asked === "confirm"
                  ? "It stays, and the rules can be edited again."
                  : "The policy before it is in force within seconds."}
              </p>
              <FromTerminal
                command={["policy", asked, draft.slug]}
                call={["POST", apiPath(endpoint, { slug: draft.slug })]}
              />
            </>
          }
          run={run}
          close={close}
        />
      )}
    </>
  );
}
