/** The ways to a store that the form *Connect…* offers, and what it makes of its fields. Pure functions. */

/** What the user types; each is empty at first. */
export interface Fields {
  name: string;
  place: string;
  /** The region; of R2 the account. */
  region: string;
  endpoint: string;
  key: string;
  secret: string;
  /** The path of a private key on the server. */
  keyFile: string;
  isPublic: boolean;
}

export interface Preset {
  id: string;
  label: string;
  kind: 's3' | 'obs' | 'gs' | 'az' | 'http' | 'sftp';
  /** The endpoint, with `{region}` in it; empty if the user types it. */
  endpoint: string;
  /** The region that requests are signed for, where it is not the one that is typed. */
  region?: string;
  /** Buckets are names of hosts below the endpoint. */
  isVirtual?: boolean;
  /** Its keys are those of an AWS profile of the server. */
  hasProfile?: boolean;
}

export const NOTHING: Fields = {
  name: '',
  place: '',
  region: '',
  endpoint: '',
  key: '',
  secret: '',
  keyFile: '',
  isPublic: false
};

/** A server whose address the user types. */
export const OTHER: Preset = { id: 's3', label: 'S3', kind: 's3', endpoint: '' };

// Endpoints as the providers document them. The labels are names, which are not translated.
export const PRESETS: readonly Preset[] = [
  OTHER,
  { id: 'aws', label: 'Amazon S3', kind: 's3', endpoint: 'https://s3.{region}.amazonaws.com' },
  {
    id: 'profile',
    label: 'AWS profile',
    kind: 's3',
    endpoint: 'https://s3.{region}.amazonaws.com',
    hasProfile: true
  },
  {
    id: 'obs',
    label: 'Huawei OBS',
    kind: 'obs',
    endpoint: 'https://obs.{region}.myhuaweicloud.com'
  },
  {
    id: 'oss',
    label: 'Alibaba OSS',
    kind: 's3',
    endpoint: 'https://s3.oss-{region}.aliyuncs.com',
    isVirtual: true
  },
  {
    id: 'cos',
    label: 'Tencent COS',
    kind: 's3',
    endpoint: 'https://cos.{region}.myqcloud.com',
    isVirtual: true
  },
  {
    id: 'r2',
    label: 'Cloudflare R2',
    kind: 's3',
    endpoint: 'https://{region}.r2.cloudflarestorage.com',
    region: 'auto'
  },
  { id: 'b2', label: 'Backblaze B2', kind: 's3', endpoint: 'https://s3.{region}.backblazeb2.com' },
  { id: 'wasabi', label: 'Wasabi', kind: 's3', endpoint: 'https://s3.{region}.wasabisys.com' },
  { id: 'minio', label: 'MinIO', kind: 's3', endpoint: '' },
  { id: 'ceph', label: 'Ceph', kind: 's3', endpoint: '' },
  { id: 'gs', label: 'Google Cloud Storage', kind: 'gs', endpoint: '' },
  { id: 'az', label: 'Azure Blob Storage', kind: 'az', endpoint: '' },
  { id: 'http', label: 'HTTP', kind: 'http', endpoint: '' },
  { id: 'sftp', label: 'SFTP', kind: 'sftp', endpoint: '' }
];

/** Return whether a kind has an endpoint and keys as S3 has them. */
export function isS3(preset: Preset): boolean {
  return preset.kind === 's3' || preset.kind === 'obs';
}

/** Return the endpoint of a preset in a region; empty if there is none, or the region is missing. */
export function endpointOf(preset: Preset, region: string): string {
  return region ? preset.endpoint.replace('{region}', region) : '';
}

/** Return what is sent to the server, as `nbdata/server/connections.py` takes it. */
export function connectionOf(
  preset: Preset,
  fields: Fields
): { name: string; kind: string; place: string; options: Record<string, string> } {
  const { key, secret, isPublic } = fields;
  const anon: Record<string, string> = isPublic ? { anon: 'true' } : {};
  const [name, region] = [fields.name.trim(), fields.region.trim()];
  const typed = fields.place.trim() || (isS3(preset) ? `${preset.kind}://` : '');
  // The user of a URL such as sftp://me@host/ is kept beside it.
  const [, scheme = '', user = ''] = /^(sftp:\/\/|ssh:\/\/)([^@/:]+)@/.exec(typed) ?? [];
  const place =
    user && preset.kind === 'sftp' ? scheme + typed.slice(typed.indexOf('@') + 1) : typed;
  const options = ((): Record<string, string> => {
    switch (preset.kind) {
      case 'gs':
        return isPublic ? anon : { token: secret };
      case 'az':
        return { account_name: key, ...(isPublic ? anon : azureKey(secret)) };
      case 'http':
        return isPublic ? {} : { username: key, password: secret };
      case 'sftp':
        return { username: key || user, password: secret, key_filename: fields.keyFile.trim() };
      default:
        return {
          endpoint_url: fields.endpoint.trim() || endpointOf(preset, region),
          region: preset.region ?? region,
          ...(preset.isVirtual ? { addressing_style: 'virtual' } : {}),
          ...(isPublic ? anon : preset.hasProfile ? { profile: key.trim() } : { key, secret })
        };
    }
  })();
  return { name, kind: preset.kind, place, options };
}

/** A shared access signature is a query; an account's key is base64. */
function azureKey(secret: string): Record<string, string> {
  return /(^|[?&])sig=/.test(secret) ? { sas_token: secret } : { account_key: secret };
}

/** Return whether enough is typed to try the connection. */
export function isComplete(preset: Preset, fields: Fields): boolean {
  const { name, place, options } = connectionOf(preset, fields);
  const needed = isS3(preset) ? [options.endpoint_url] : preset.kind === 'az' ? [fields.key] : [];
  const keys =
    fields.isPublic || ['gs', 'http', 'sftp'].includes(preset.kind)
      ? []
      : preset.hasProfile
        ? [fields.key.trim()]
        : [fields.key, fields.secret];
  return [name, place, ...needed, ...keys].every(text => Boolean(text));
}
