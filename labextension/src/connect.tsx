/** The tray *Connect…*: a way to a store, which is tried before it is kept. */

import * as React from 'react';

import { ask } from './connection.js';
import { Problem, useAttempt } from './parts.js';
import {
  connectionOf,
  endpointOf,
  Fields,
  isComplete,
  isS3,
  NOTHING,
  OTHER,
  Preset,
  PRESETS
} from './presets.js';
import { trans } from './text.js';

/** A field of the form. Its text is kept by no browser: it may be a key. */
function Field(props: {
  label: string;
  value: string;
  hint?: string;
  isSecret?: boolean;
  set: (value: string) => void;
}): React.JSX.Element {
  return (
    <label className="nbd-Field nbd-mod-stacked">
      {props.label}
      <input
        type={props.isSecret ? 'password' : 'text'}
        value={props.value}
        placeholder={props.hint}
        autoComplete={props.isSecret ? 'new-password' : 'off'}
        spellCheck={false}
        onChange={event => props.set(event.target.value)}
      />
    </label>
  );
}

/** The content of the tray; `kept` is called with the name of what was kept. */
export function Connect({ kept }: { kept: (name: string) => void }): React.JSX.Element {
  const [preset, setPreset] = React.useState<Preset>(OTHER);
  const [fields, setFields] = React.useState<Fields>(NOTHING);
  const { busy, problem, attempt } = useAttempt();
  const control = React.useRef<AbortController | null>(null);
  React.useEffect(() => () => control.current?.abort(), []);
  const label = trans.__('Connect');
  const isReady = isComplete(preset, fields) && !busy;
  const set =
    (name: keyof Fields) =>
    (value: string): void =>
      setFields(before => ({ ...before, [name]: value }));
  const submit = async (): Promise<void> => {
    const made = connectionOf(preset, fields);
    control.current = new AbortController();
    const { signal } = control.current;
    await ask('connections/keep', 'POST', made, signal);
    if (!signal.aborted) {
      setFields(NOTHING);
      kept(made.name);
    }
  };
  return (
    <form
      autoComplete="off"
      onSubmit={event => {
        event.preventDefault();
        if (isReady) {
          void attempt(label, submit);
        }
      }}
    >
      <label className="nbd-Field nbd-mod-stacked">
        {trans.__('Kind')}
        <select
          value={preset.id}
          onChange={event => {
            setPreset(PRESETS.find(one => one.id === event.target.value) ?? preset);
            setFields(before => ({ ...before, endpoint: '', keyFile: '', isPublic: false }));
          }}
        >
          {PRESETS.map(one => (
            <option key={one.id} value={one.id}>
              {one === OTHER ? trans.__('S3 at another address') : one.label}
            </option>
          ))}
        </select>
      </label>
      <Field label={trans.__('Name')} value={fields.name} hint="lab-data" set={set('name')} />
      {isS3(preset) && (
        <>
          <Field
            label={preset.id === 'r2' ? trans.__('Account') : trans.__('Region')}
            value={fields.region}
            set={set('region')}
          />
          <Field
            label={trans.__('Endpoint')}
            value={fields.endpoint}
            hint={endpointOf(preset, fields.region.trim()) || 'https://host:9000'}
            set={set('endpoint')}
          />
        </>
      )}
      <Field
        label={trans.__('URL to begin with')}
        value={fields.place}
        hint={
          isS3(preset)
            ? trans.__('%1 for all buckets, or %2', `${preset.kind}://`, `${preset.kind}://bucket/`)
            : preset.kind === 'http'
              ? 'https://server/folder/'
              : preset.kind === 'sftp'
                ? 'sftp://server/folder/'
                : `${preset.kind}://bucket/`
        }
        set={set('place')}
      />
      {preset.kind !== 'sftp' && !preset.hasProfile && (
        <label className="nbd-Check">
          <input
            type="checkbox"
            checked={fields.isPublic}
            onChange={event =>
              setFields(before => ({ ...before, isPublic: event.target.checked, secret: '' }))
            }
          />
          {trans.__('Public data: no key')}
        </label>
      )}
      <Keys {...{ preset, fields, set }} />
      <p className="nbd-Small nbd-Wrapped">
        {trans.__(
          'The server lists this URL first. Only if that works, it keeps the connection, in a file that only you can read.'
        )}
      </p>
      <div className="nbd-Acts">
        <button type="submit" className="nbd-Button nbd-mod-text nbd-Act" aria-disabled={!isReady}>
          {label}
        </button>
      </div>
      {busy && <p role="status">{trans.__('Asking the store…')}</p>}
      <Problem text={problem} />
    </form>
  );
}

/** The fields of who asks. */
function Keys(props: {
  preset: Preset;
  fields: Fields;
  set: (name: keyof Fields) => (value: string) => void;
}): React.JSX.Element {
  const { preset, fields, set } = props;
  const { kind } = preset;
  const names = {
    s3: [trans.__('Access key'), trans.__('Secret key')],
    obs: [trans.__('Access key'), trans.__('Secret key')],
    gs: ['', trans.__('Key file on the server')],
    az: [trans.__('Storage account'), trans.__('Account key or SAS')],
    http: [trans.__('User'), trans.__('Password')],
    sftp: [trans.__('User'), trans.__('Password')]
  }[kind];
  if (preset.hasProfile) {
    return (
      <Field
        label={trans.__('Profile of this server')}
        value={fields.key}
        hint="default"
        set={set('key')}
      />
    );
  }
  return (
    <>
      {names[0] && (kind === 'az' || !fields.isPublic) && (
        <Field label={names[0]} value={fields.key} set={set('key')} />
      )}
      {!fields.isPublic && (
        <Field
          label={names[1] ?? ''}
          value={fields.secret}
          isSecret={kind !== 'gs'}
          hint={
            kind === 'gs'
              ? trans.__('empty: the login found there')
              : kind === 'sftp'
                ? trans.__('empty: a key of the server')
                : ''
          }
          set={set('secret')}
        />
      )}
      {kind === 'sftp' && (
        <Field
          label={trans.__('Key file on the server')}
          value={fields.keyFile}
          hint={trans.__('empty: those in ~/.ssh')}
          set={set('keyFile')}
        />
      )}
    </>
  );
}
