import assert from 'node:assert/strict';
import test from 'node:test';

import {
  connectionOf,
  endpointOf,
  Fields,
  isComplete,
  NOTHING,
  Preset,
  PRESETS
} from '../presets.js';
import { parseKnown } from '../known.js';

function preset(id: string): Preset {
  const found = PRESETS.find(one => one.id === id);
  assert.ok(found);
  return found;
}

const typed: Fields = { ...NOTHING, name: ' lab ', region: 'eu-1', key: 'k', secret: 's' };

test('a preset knows its endpoint once the region is typed', () => {
  assert.equal(endpointOf(preset('aws'), 'eu-1'), 'https://s3.eu-1.amazonaws.com');
  assert.equal(endpointOf(preset('oss'), 'cn-hangzhou'), 'https://s3.oss-cn-hangzhou.aliyuncs.com');
  assert.equal(endpointOf(preset('aws'), ''), '');
  assert.equal(endpointOf(preset('minio'), 'eu-1'), '');
});

test('a profile and a server of SFTP have fields of their own', () => {
  assert.deepEqual(connectionOf(preset('profile'), { ...typed, key: 'research', secret: '' }), {
    name: 'lab',
    kind: 's3',
    place: 's3://',
    options: {
      endpoint_url: 'https://s3.eu-1.amazonaws.com',
      region: 'eu-1',
      profile: 'research'
    }
  });
  assert.ok(isComplete(preset('profile'), { ...typed, secret: '' }));
  assert.ok(!isComplete(preset('profile'), { ...typed, key: ' ' }));
  const place = 'sftp://me@host:2222/d@e/';
  assert.deepEqual(
    connectionOf(preset('sftp'), { ...NOTHING, name: 'lab', place, keyFile: '~/.ssh/k' }),
    {
      name: 'lab',
      kind: 'sftp',
      place: 'sftp://host:2222/d@e/',
      options: { username: 'me', password: '', key_filename: '~/.ssh/k' }
    }
  );
  assert.ok(isComplete(preset('sftp'), { ...NOTHING, name: 'lab', place }));
});

test('fields become the options of their kind', () => {
  assert.deepEqual(connectionOf(preset('cos'), typed), {
    name: 'lab',
    kind: 's3',
    place: 's3://',
    options: {
      endpoint_url: 'https://cos.eu-1.myqcloud.com',
      region: 'eu-1',
      addressing_style: 'virtual',
      key: 'k',
      secret: 's'
    }
  });
  assert.equal(connectionOf(preset('obs'), typed).place, 'obs://');
  assert.equal(connectionOf(preset('r2'), typed).options.region, 'auto');
  const own = { ...typed, endpoint: 'http://me:9000', place: 's3://b/', isPublic: true };
  assert.deepEqual(connectionOf(preset('minio'), own).options, {
    endpoint_url: 'http://me:9000',
    region: 'eu-1',
    anon: 'true'
  });
  assert.deepEqual(connectionOf(preset('gs'), { ...typed, secret: '/k.json' }).options, {
    token: '/k.json'
  });
  assert.deepEqual(connectionOf(preset('az'), typed).options, {
    account_name: 'k',
    account_key: 's'
  });
  assert.deepEqual(connectionOf(preset('az'), { ...typed, secret: '?sv=1&sig=x' }).options, {
    account_name: 'k',
    sas_token: '?sv=1&sig=x'
  });
  assert.deepEqual(connectionOf(preset('http'), { ...typed, isPublic: true }).options, {});
});

test('what is not complete is not tried', () => {
  assert.ok(isComplete(preset('aws'), typed));
  assert.ok(!isComplete(preset('aws'), { ...typed, region: '' }));
  assert.ok(!isComplete(preset('aws'), { ...typed, secret: '' }));
  assert.ok(isComplete(preset('aws'), { ...typed, key: '', secret: '', isPublic: true }));
  assert.ok(!isComplete(preset('minio'), typed));
  assert.ok(!isComplete(preset('gs'), { ...typed, key: '', secret: '' }));
  assert.ok(isComplete(preset('gs'), { ...typed, secret: '', place: 'gs://b/' }));
  assert.ok(!isComplete(preset('az'), { ...NOTHING, name: 'a', place: 'az://c/', isPublic: true }));
});

test('of connections only names come from the server', () => {
  assert.deepEqual(
    parseKnown({ kept: [{ name: 'a\u202e', key: 'x', place: 's3://b/' }], found: [5] }),
    {
      kept: [{ name: 'a\\u202e', place: 's3://b/', endpoint: '', isPublic: false }],
      found: [''],
      recent: []
    }
  );
  assert.deepEqual(parseKnown(null), { kept: [], found: [], recent: [] });
});
