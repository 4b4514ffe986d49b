import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;

/** Everyday uses of Jedis against `terrace kv`: the argument is the port. Exits with an error at the first surprise. */
public class Kv {
  static void same(Object wanted, Object got) {
    if (!wanted.equals(got)) throw new AssertionError("wanted " + wanted + ", got " + got);
  }

  static <E extends Exception> void fails(Class<E> kind, Runnable run) {
    try {
      run.run();
    } catch (Exception error) {
      if (kind.isInstance(error)) return;
      throw error;
    }
    throw new AssertionError("no " + kind);
  }

  public static void main(String[] args) throws Exception {
    int port = Integer.parseInt(args[0]);
    try (JedisPool pool = new JedisPool("127.0.0.1", port); Jedis jedis = pool.getResource()) {
      jedis.flushAll();
      types(jedis);
      pipelines(jedis);
      transactions(pool);
      scripts(jedis);
      messages(pool);
      users(jedis, port);
    }
    try (JedisPooled jedis = new JedisPooled("127.0.0.1", port)) {
      same("1", jedis.hget("hash", "a"));
    }
    System.out.println("Jedis: ok");
  }

  static void types(Jedis jedis) {
    same("OK", jedis.set("text", "value"));
    same(3L, jedis.rpush("list", "a", "b", "c"));
    same(List.of("a", "b", "c"), jedis.lrange("list", 0, -1));
    same(2L, jedis.hset("hash", Map.of("a", "1", "b", "2")));
    same(Map.of("a", "1", "b", "2"), jedis.hgetAll("hash"));
    same(2L, jedis.zadd("zset", Map.of("a", 1.5, "b", 2.0)));
    same(1.5, jedis.zscore("zset", "a"));
    fails(JedisDataException.class, () -> jedis.incr("text"));
    for (int n = 0; n < 500; n++) jedis.set("scan:" + n, "");
    List<String> found = new ArrayList<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      var page = jedis.scan(cursor, new ScanParams().match("scan:*").count(50));
      found.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    same(500L, found.stream().distinct().count());
  }

  static void pipelines(Jedis jedis) {
    var pipeline = jedis.pipelined();
    for (int n = 0; n < 1000; n++) pipeline.incr("count");
    List<Object> replies = pipeline.syncAndReturnAll();
    same(1000, replies.size());
    same(1000L, replies.get(999));
  }

  static void transactions(JedisPool pool) {
    try (Jedis one = pool.getResource(); Jedis other = pool.getResource()) {
      one.watch("watched");
      other.set("watched", "changed");
      Transaction transaction = one.multi();
      transaction.set("watched", "mine");
      var replies = transaction.exec();
      if (replies != null && !replies.isEmpty()) throw new AssertionError("a changed key was written");
      same("changed", one.get("watched"));
    }
  }

  static void scripts(Jedis jedis) {
    same("value", jedis.eval("return redis.call('get', KEYS[1])", Collections.singletonList("text"), List.of()));
    jedis.functionLoadReplace("#!lua name=jedis\nredis.register_function('echo', function(_, args) return args[1] end)");
    same("hello", jedis.fcall("echo", List.of(), List.of("hello")));
  }

  static void messages(JedisPool pool) throws Exception {
    CountDownLatch subscribed = new CountDownLatch(1);
    List<String> heard = Collections.synchronizedList(new ArrayList<>());
    Thread thread = new Thread(() -> {
      try (Jedis jedis = pool.getResource()) {
        jedis.subscribe(new JedisPubSub() {
          @Override public void onSubscribe(String channel, int count) { subscribed.countDown(); }
          @Override public void onMessage(String channel, String message) {
            heard.add(message);
            if (heard.size() == 100) unsubscribe();
          }
        }, "news");
      }
    });
    thread.start();
    if (!subscribed.await(30, TimeUnit.SECONDS)) throw new AssertionError("not subscribed");
    try (Jedis jedis = pool.getResource()) {
      for (int n = 0; n < 100; n++) same(1L, jedis.publish("news", "" + n));
    }
    thread.join(30_000);
    same(100, heard.size());
    same("99", heard.get(99));
  }

  static void users(Jedis jedis, int port) {
    jedis.aclSetUser("java", "on", ">pw", "~own:*", "+@all");
    same(List.of("on"), jedis.aclGetUser("java").getFlags());
    try (Jedis own = new Jedis("127.0.0.1", port)) {
      own.auth("java", "pw");
      same("OK", own.set("own:1", "x"));
      fails(JedisAccessControlException.class, () -> own.set("other", "x"));
    }
  }
}
